// A reference to a function, for the time of the call that it is passed to.
#pragma once

namespace larder {

template <typename>
class FunctionRef;

template <typename Result, typename... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <typename Function>
  FunctionRef(const Function& function)
      : function_(&function), call_([](const void* to, Arguments... arguments) {
          return (*static_cast<const Function*>(to))(arguments...);
        }) {}
  Result operator()(Arguments... arguments) const { return call_(function_, arguments...); }

 private:
  const void* function_;
  Result (*call_)(const void*, Arguments...);
};

}  // namespace larder
