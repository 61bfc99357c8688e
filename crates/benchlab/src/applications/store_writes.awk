# Writes, bytes and syncs of a key-value store by kinds of its files, from what `strace -f -y` wrote down.
# `mark` is what separates phases, of which the numbers are printed.
# awk -v mark='write\\(1<' -f store_writes.awk TRACE
{ pid = $1 }
$0 ~ mark { phase++; next }
/<unfinished \.\.\.>$/ { begun[pid] = $0; next }
{ line = $0; if (/resumed>/) line = begun[pid] " " $0 }
line !~ /ycsb-[a-f]\// || line ~ /syncfs/ { next }
{
    match(line, /ycsb-[a-f]/)
    kind = line ~ /\.log>/ ? "log" : line ~ /\.(ldb|sst)>/ ? "tables" : line ~ /\/LOG>/ ? "diary" : "manifest"
    key = substr(line, RSTART, 6) " phase " phase + 0 " " kind
    seen[key]
    if (line ~ /write/ && $NF > 0) { writes[key]++; bytes[key] += $NF }
    if (line ~ /sync\(/) syncs[key]++
}
END { for (key in seen) printf "%s: writes %d, bytes %d, syncs %d\n", key, writes[key], bytes[key], syncs[key] }
