# about: Ruby's own tests of the language and its core classes (test/ruby)
# program: /usr/bin/ruby
# packages: ruby
# source: ruby3.1

# Without those that start hundreds of processes or compilers, and one whose tests are chosen at random.
suite() {
  find test/ruby -name 'test_*.rb' | grep -vE 'test_(rubyoptions|process|.*jit.*|require_lib)\.rb' | sort |
    xargs $RUN ruby test/runner.rb -v
}
results() {
  awk '/^\[ *[0-9]+\/[0-9]+\] .* = / { sub(/^\[[^]]*\] /, ""); sub(/ = .*/, ""); ran[$0] }
    due { sub(/ \[.*/, ""); sub(/:$/, ""); failed[$0]; due = 0 }
    /^ *[0-9]+\) (Failure|Error):/ { due = 1 }
    END { for (test in ran) print (test in failed ? "fail " : "pass ") test }' "$LOG"
}
