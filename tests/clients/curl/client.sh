#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# curl, by hand, against chxad: see tests/e2e/test_clients.py for what is expected of it.
#
# usage: client.sh URL DATABASE. Prints one JSON object: what each step gave.
set -euo pipefail
url=$1 database=$2
insert="$url/?database=$database&query=INSERT%20INTO%20t%20FORMAT"

count() { curl -sS "$url/?database=$database" --data-binary 'SELECT count() FROM t'; }
# status and exception of a request
failure() { curl -sS -o /dev/null -w '%{http_code} %header{X-ClickHouse-Exception-Code}' "$@"; }

ping=$(curl -sS "$url/ping")
curl -sS "$url/?database=$database" --data-binary 'CREATE TABLE t (n UInt64, s String) ENGINE = MergeTree ORDER BY n'

curl -sS -o /dev/null -X PUT "$url/v1/transactions/curl-1"
printf '1\ta\n2\tb\n' | curl -sS "$insert%20TSV&chxa_txn=curl-1" --data-binary @-
printf '{"n": 3, "s": "c"}\n' | curl -sS -H 'X-Chxa-Transaction: curl-1' "$insert%20JSONEachRow" --data-binary @-
seq 10 10009 | sed 's/$/,gzip/' | gzip |
    curl -sS -H 'Content-Encoding: gzip' "$insert%20CSV&chxa_txn=curl-1" --data-binary @-
(echo 'INSERT INTO t FORMAT TSV'; printf '4\tbody\n') | gzip |
    curl -sS -H 'Content-Encoding: gzip' "$url/?database=$database&chxa_txn=curl-1" --data-binary @-
printf '5\tupload\n' | curl -sS -T - "$insert%20TSV&chxa_txn=curl-1"
before=$(count)
curl -sS -o /dev/null -X POST "$url/v1/transactions/curl-1/commit"
after=$(count)

curl -sS -o /dev/null -X PUT "$url/v1/transactions/curl-2"
rows=$(printf '20000\tx\n' | curl -sS -D - "$insert%20TSV&chxa_txn=curl-2" --data-binary @- |
    sed -n 's/^X-ClickHouse-Summary: .*"written_rows":"\([0-9]*\)".*/\1/p')
curl -sS -o /dev/null -X POST "$url/v1/transactions/curl-2/rollback"
rolled_back=$(count)

curl -sS -o /dev/null -X PUT "$url/v1/transactions/curl-3"
bad=$(failure "$insert%20TSV&chxa_txn=curl-3" --data-binary 'not a number')
printf '30000\tgood\n' | curl -sS "$insert%20TSV&chxa_txn=curl-3" --data-binary @-
curl -sS -o /dev/null -X POST "$url/v1/transactions/curl-3/commit"
after_bad=$(count)
nobody=$(failure "$insert%20TSV&chxa_txn=nobody" --data-binary '1')
printf '40000\toutside\n' | curl -sS "$insert%20TSV" --data-binary @-

printf '{"ping": "%s", "before_commit": %d, "after_commit": %d, "summary_rows": %d, "after_rollback": %d, ' \
    "$ping" "$before" "$after" "$rows" "$rolled_back"
printf '"bad_row": "%s", "after_bad": %d, "no_transaction": "%s", "outside": %d}\n' \
    "$bad" "$after_bad" "$nobody" "$(count)"
