#!/bin/sh
# sqlite.sh ROWS: an in-memory database: bulk insert, indexes, updates, grouping, a join.
#
# The shell is replaced by sqlite3, so that time and memory are those of the database alone.
set -eu
rows=${1:?usage: sqlite.sh ROWS}
[ "$rows" -ge 100 ] || rows=100
exec sqlite3 :memory: "
CREATE TABLE orders(id INTEGER PRIMARY KEY, client INTEGER, item TEXT, price REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $rows)
INSERT INTO orders SELECT i, (i * 7919) % 5003, printf('item-%d-%s', i % 997,
  hex(i * 2654435761 % 4294967296)), (i % 1000) / 10.0 FROM n;
CREATE INDEX by_client ON orders(client);
CREATE INDEX by_item ON orders(item);
UPDATE orders SET item = item || '-sold' WHERE id % 3 = 0;
SELECT count(*), sum(price) FROM (SELECT client, sum(price) AS price FROM orders GROUP BY client);
SELECT count(*) FROM orders a JOIN orders b ON a.client = b.client AND b.id = a.id + 5003;
SELECT length(group_concat(item)) FROM orders WHERE client < 500;
DELETE FROM orders WHERE id % 2 = 0;
SELECT count(DISTINCT substr(item, 1, 9)) FROM orders;
"
