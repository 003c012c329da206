# about: ruby: strings, hashes, big numbers, threads, fork
# programs: ruby\S*
# needs: ruby

cat >script.rb <<'END'
require 'digest'
require 'json'
require 'zlib'

random = Random.new(7)
words = Array.new(100_000) { Array.new(1 + random.rand(20)) { (97 + random.rand(6)).chr }.join }
counts = words.tally
text = JSON.generate(counts.sort)
puts Digest::SHA256.hexdigest(text)
puts Zlib::Inflate.inflate(Zlib::Deflate.deflate(text)) == text
puts Digest::SHA256.hexdigest((1..2_000).inject(:*).to_s)
puts words.each_slice(100).map { |slice| slice.join('-').gsub(/a+/, 'AA') }.sum(&:size)
threads = 8.times.map { |n| Thread.new { (1..20_000).map { |i| 'x' * (i % 300) }.sum(&:size) + n } }
puts threads.map(&:value).inspect
pids = 10.times.map { |n| fork { exit!(Array.new(n * 1000) { 'y' * 50 }.size / 1000) } }
puts pids.map { |pid| Process.wait2(pid)[1].exitstatus }.inspect
GC.start
exit 6
END
$RUN ruby script.rb
echo "exit code $?"
