# about: clang compiles the same C++; object bytes compared
# programs: clang\S*
# needs: clang++-19 g++

cp "$CASE/words.cc" .
$RUN clang++-19 -std=c++20 -O1 -ffile-prefix-map="$PWD"=. -c words.cc -o words.o || exit 1
digest <words.o
