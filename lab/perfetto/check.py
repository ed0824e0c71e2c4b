"""Decodes a Perfetto trace with Google's own generated code and holds it to
the requests that whylate lists:

    python3 -m venv v && v/bin/pip install perfetto==0.59.1 protobuf
    whylate export --to perfetto --all -o x.perfetto x.trace
    whylate export --to csv --rows requests -o x.csv x.trace
    v/bin/python lab/perfetto/check.py x.perfetto x.csv

It prints how many packets, tracks, slices and flows there are and compares
the number and the durations of requests and causes, to the nanosecond. The
step "programs" of .ci/full runs it.
"""

import collections
import csv
import sys
import zlib

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto


def packets(data):
    """The packets, one by one: the file is one Trace message, and so is each compressed block in it."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        assert varint() == 1 << 3 | 2, "not a packet"
        size = varint()
        packet = proto.TracePacket()
        packet.ParseFromString(data[at:at + size])
        at += size
        if packet.compressed_packets:
            yield from packets(zlib.decompress(packet.compressed_packets))
        else:
            yield packet


def main(trace, table):
    begin, end, instant = (proto.TrackEvent.TYPE_SLICE_BEGIN, proto.TrackEvent.TYPE_SLICE_END, proto.TrackEvent.TYPE_INSTANT)
    names, categories, tracks = {}, {}, {}
    open_slices = collections.defaultdict(list)
    count, total = collections.Counter(), collections.Counter()
    flows = collections.Counter()
    n = 0
    for p in packets(open(trace, "rb").read()):
        n += 1
        for x in p.interned_data.event_names:
            names[x.iid] = x.name
        for x in p.interned_data.event_categories:
            categories[x.iid] = x.name
        if p.HasField("track_descriptor"):
            tracks[p.track_descriptor.uuid] = p.track_descriptor.name
        if not p.HasField("track_event"):
            continue
        e = p.track_event
        assert e.track_uuid in tracks, "an event before its track"
        if e.type == begin:
            open_slices[e.track_uuid].append((p.timestamp, categories[e.category_iids[0]], names[e.name_iid]))
        elif e.type == end:
            at, category, name = open_slices[e.track_uuid].pop()
            count[category] += 1
            total[category] += p.timestamp - at
            if category == "segment":
                total["segment " + name] += p.timestamp - at
        elif e.type == instant:
            flows.update(e.flow_ids)
            flows.update(e.terminating_flow_ids)
    assert not any(open_slices.values()), "slices that never end"
    assert all(v == 2 for v in flows.values()), "flows with one end"
    rows = list(csv.DictReader(open(table, newline="")))
    want = collections.Counter()
    for r in rows:
        want["request"] += int(r["latency_ns"])
        for k, v in r.items():
            if k.endswith("_ns") and k not in ("start_ns", "latency_ns"):
                want["segment " + k[:-3]] += int(v)
    print(f"{n} packets, {len(tracks)} tracks, {sum(count.values())} slices {dict(count)}, {len(flows)} flows")
    assert count["request"] == len(rows), (count["request"], len(rows))
    for k, v in want.items():
        assert total[k] == v, (k, total[k], v)
    print(f"{len(rows)} requests of {want['request']} ns, and each cause's time, are those of the table")


main(*sys.argv[1:])
