-- +goose Up
-- Sums beyond 64 bits were turned into floating-point numbers, which no query of integers reads. They stay at rows.MaxSum, as today's do.
UPDATE points SET n=CAST(max(0, min(n, 4611686018427387903)) AS INTEGER), ns=CAST(max(0, min(ns, 4611686018427387903)) AS INTEGER)
	WHERE typeof(n)<>'integer' OR typeof(ns)<>'integer' OR n>4611686018427387903 OR ns>4611686018427387903;
UPDATE daypoints SET n=CAST(max(0, min(n, 4611686018427387903)) AS INTEGER), ns=CAST(max(0, min(ns, 4611686018427387903)) AS INTEGER)
	WHERE typeof(n)<>'integer' OR typeof(ns)<>'integer' OR n>4611686018427387903 OR ns>4611686018427387903;
UPDATE seen SET n=CAST(max(0, min(n, 4611686018427387903)) AS INTEGER), requests=CAST(max(0, min(requests, 4611686018427387903)) AS INTEGER),
	ns=CAST(max(0, min(ns, 4611686018427387903)) AS INTEGER)
	WHERE typeof(n)<>'integer' OR typeof(requests)<>'integer' OR typeof(ns)<>'integer' OR requests>4611686018427387903 OR ns>4611686018427387903;
