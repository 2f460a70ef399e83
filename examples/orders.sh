#!/usr/bin/env bash
# Load the orders of a shop, change them every day, read an earlier day, and undo a mistake.
# orders.py does this in Python.
#
#     orders.sh FOLDER [ORDERS]
set -euo pipefail
mkdir -p "$1" && cd "$1"
count=${2:-20000}

# Orders from $1 to $2, as any shop exports them
some_orders() {
    awk -v first="$1" -v last="$2" 'BEGIN {
        srand(7); print "order_id,customer,status,amount,ordered_at"
        split("new paid sent", status, " ")
        for (n = first; n < last; n++)
            printf "%d,%d,%s,%.2f,2026-%02d-%02dT12:00:00Z\n", n, n % 1000, status[1 + int(rand() * 3)], 1 + rand() * 200, 1 + n % 3, 1 + n % 28
    }'
}
some_orders 0 "$count" >orders.csv
some_orders "$count" "$((count + count / 100))" >today.csv
awk -v count="$count" 'BEGIN { print "order_id,status"; for (n = 0; n < count; n += 20) print n ",paid" }' >paid.csv

# 1. The columns and their types come from the file
hoodoo create orders --schema-from orders.csv --key order_id
hoodoo upsert orders orders.csv
hoodoo info orders

# 2. Each day: statuses that changed (two columns of five), new orders, and some that were cancelled
hoodoo upsert orders paid.csv --columns given
hoodoo upsert orders today.csv
hoodoo delete orders --where "status = 'new' AND amount < 3"
hoodoo update orders --set "status='late'" --where "status = 'paid' AND ordered_at < '2026-01-05'"

# 3. What happened, and what the table was like before
hoodoo history orders
hoodoo changes orders --since 5 --output late.csv
hoodoo scan orders --as-of 5 --where "order_id = 0"
hoodoo get orders 0

# 4. A mistake, taken back: history stays readable
hoodoo savepoint orders before-the-mistake
hoodoo update orders --set "amount=0"
hoodoo restore orders before-the-mistake

# 5. What a worker does beside writers, once and now; then look for damage
hoodoo compact orders
hoodoo clean orders
hoodoo services orders
hoodoo verify orders

# 6. Take rows out again, and delete what another program chose
hoodoo scan orders --columns order_id,amount --where "amount > 200" --output large.parquet
hoodoo scan orders --columns order_id --where "status = 'late'" --json | hoodoo delete orders -
