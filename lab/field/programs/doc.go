// Package programs holds small mains around the packages of real programs and libraries, for the corpus of lab/field. Each
// directory is a module outside of go.work, so that its dependencies do not change the versions of other modules.
//
// Services around libraries are in shops, a module with a path of its own, as that of a user: the service's own code is told from
// that of its dependencies by it. What they have in common is in shops/internal/run; the servers that they need (PostgreSQL,
// Redis, Kafka) are started by lab/field. What is held out of the corpus is in shops/held, a module with requirements of its own.
//
// A main takes those of these flags that it has a use for:
//
//	-listen ADDR   where it serves what it is there for
//	-pprof ADDR    where it serves net/http/pprof; it answers there when all is ready
//	-data DIR      a directory of its own, empty at the start
//	-fault NAME    the fault; without it the program is the healthy twin
//
// What requests take is measured by lab/field's own clients where they speak HTTP. For another protocol the program is started
// once more as its own client, with arguments of its own choice, and prints each request; a program that has
// no clients (a cron worker, a consumer) prints what it does itself by its own clock.
//
//	go run ./lab/field -corpus -only NAME
package programs
