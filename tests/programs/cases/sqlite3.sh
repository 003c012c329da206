# about: sqlite3: a database in memory and one in a file, joins, full text search, window functions
# programs: sqlite3
# needs: sqlite3

cat >script.sql <<'END'
CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, town TEXT, age INT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
  INSERT INTO person SELECT i, 'name' || (i * 7919 % 50021), 'town' || (i % 113), i * 31 % 97 FROM n;
CREATE INDEX by_name ON person(name);
CREATE INDEX by_town ON person(town, age);
SELECT count(*), sum(age), min(name), max(name) FROM person;
SELECT town, count(*), avg(age) FROM person GROUP BY town ORDER BY 2 DESC, 1 LIMIT 10;
SELECT count(*) FROM person a JOIN person b ON a.name = b.name AND a.id < b.id;
SELECT id, sum(age) OVER (ORDER BY id ROWS 100 PRECEDING) FROM person WHERE id % 20011 = 0;
CREATE VIRTUAL TABLE page USING fts5(title, body);
INSERT INTO page SELECT name, town || ' ' || age || ' ' || name FROM person WHERE id <= 20000;
SELECT count(*) FROM page WHERE page MATCH 'town7 AND 42';
SELECT length(group_concat(name, ',')) FROM person;
UPDATE person SET name = name || name || name WHERE id % 3 = 0;
DELETE FROM person WHERE id % 5 = 0;
VACUUM;
PRAGMA integrity_check;
SELECT count(*), sum(length(name)) FROM person;
END
$RUN sqlite3 :memory: <script.sql || exit 1
$RUN sqlite3 file.db <script.sql | digest
$RUN sqlite3 file.db .dump | digest
$RUN sqlite3 file.db 'SELECT no_such_column FROM person' 2>&1
echo "an error: $?"
