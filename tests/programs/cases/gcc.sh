# about: gcc compiles and links C++ heavy in templates; object and program bytes compared
# programs: x86_64-linux-gnu-g\+\+-\d+|.*g\+\+.* cc1plus as ld.*|collect2 words
# needs: g++ sha256sum

cp "$CASE/words.cc" .
$RUN g++ -std=c++20 -O1 -g -ffile-prefix-map="$PWD"=. -frandom-seed=1 -Wall -Wextra -c words.cc -o words.o || exit 1
digest <words.o
$RUN g++ words.o -o words -pthread || exit 1
digest <words
$RUN ./words
$RUN g++ -std=c++20 -fsyntax-only -x c++ - <<<'int main() { return "text"; }' 2>&1
echo "an error: $?"
