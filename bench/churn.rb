# churn.rb SCALE: an ordinary script's objects: records built, written as JSON, read, grouped, sorted.
#
# Ruby's objects are slots of pages that it takes aligned from malloc; every longer string, array,
# hash table and symbol is a block of its own, which the collector frees in bulk.
require 'json'

count = [50, (40_000 * Float(ARGV.fetch(0))).to_i].max
records = Array.new(count) do |i|
  { 'id' => i, 'name' => "user-#{i % 977}", 'tags' => ["t#{i % 7}", "t#{i % 13}"],
    'note' => 'a text that is too long to lie in the object' + i.to_s }
end
text = ''
4.times do
  text = JSON.generate(records)
  records = JSON.parse(text)
end
by_name = records.group_by { |record| record['name'] }
by_name.each_value { |group| group.sort_by! { |record| [-record['id'], record['note']] } }
words = Hash.new(0)
text.scan(/[a-z]+-\d+/) { |word| words[word] += 1 }
lines = by_name.keys.sort.map { |name| "#{name}:#{by_name[name].size}:#{words[name]}" }
merged = records.each_slice(10).map { |part| part.map { |record| record['note'].upcase }.join(',') }
raise 'wrong' unless lines.size == [977, count].min && merged.sum(&:size) > count * 40
