// new and delete inlined (larder/inline.h), in a program with liblarder.a: they serve each other
// and the operators of the library, which the C++ library itself calls. Not preloaded.

#define LARDER_INLINE_NEW_DELETE
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "larder/inline.h"
#include "support.h"

using namespace alloctest;

namespace {

struct Node {
  long words[5];
};

// The loop's iterations allocate at one address, without a call.
void require_inlined() {
  for (int i = 0; i < 3; ++i) delete opaque(new Node());
  void** kept = LARDER_INLINE_NAME(state).kept;
  Node* node = opaque(new Node());
  CHECK(kept[larder_inline_class(sizeof(Node))] == LARDER_INLINE_NONE);
  delete opaque(node);
  CHECK(kept[larder_inline_class(sizeof(Node))] == node);
  node = nullptr;
  delete opaque(node);
  // By the library's operator: the size is not known.
  operator delete(operator new(opaque(sizeof(Node))));
}

void use_containers() {
  std::map<int, std::string> words;
  std::list<std::unique_ptr<Node>> nodes;
  std::vector<std::shared_ptr<std::string>> shared;
  Random random(1);
  for (int i = 0; i < 20000; ++i) {
    words[int(random.below(2000))] = std::string(random.below(300), 'w');
    nodes.push_back(std::make_unique<Node>());
    if (nodes.size() > 100) nodes.pop_front();
    shared.push_back(std::make_shared<std::string>(50, 's'));
    if (shared.size() > 1000) shared.clear();
  }
  for (const auto& [key, word] : words) CHECK(word.find_first_not_of('w') == std::string::npos);
}

struct Huge {
  char bytes[size_t{1} << 46];
};

void require_bad_alloc() {
  bool caught = false;
  try {
    delete opaque(new Huge);
  } catch (const std::bad_alloc&) {
    caught = true;
  }
  CHECK(caught);
}

}  // namespace

int main() {
  test_name = "inline_new";
  watchdog();
  require_inlined();
  use_containers();
  std::thread(use_containers).join();
  require_bad_alloc();
  say("new and delete are inlined");
  return 0;
}
