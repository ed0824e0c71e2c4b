// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// Events of the Go scheduler, seen at probes in the runtime's functions. rebuild.sh compiles this file.
//
// It uses no type of the kernel but the registers, so it needs no relocation by the kernel's type information (BTF).
// Registers at the probes: Go's ABIInternal for amd64. R14 is the running g, arguments are in AX, BX, CX, DI, SI.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed long long s64;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef int __s32;
typedef s64 __s64;
typedef u32 __be32;
typedef u16 __be16;
typedef u32 __wsum;
typedef u8 __u8;

#include <bpf/bpf_helpers.h>

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_RB_NO_WAKEUP 1

char _license[] SEC("license") = "Dual BSD/GPL";

struct pt_regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

// Set by the recorder: the process, and the layout of the runtime's structures.
const volatile u32 tgid;
const volatile u32 g_m, g_status, g_goid, g_schedlink, g_sched_pc, g_sched_bp, g_syscall_pc, g_startpc, g_coroarg, m_curg, coro_g;
const volatile int g_syscall_bp; // -1: the release does not save it

enum kind {
	KIND_BLOCK = 1,      // reason, skip, stack
	KIND_START,
	KIND_READY,          // other: the goroutine that makes it ready, or 0; skip, stack
	KIND_CREATE,         // other: the creator; pc: the start; stack
	KIND_DESTROY,
	KIND_STOP,           // reason 1: preempted; stack
	KIND_SWITCH,         // other: the goroutine that runs now
	KIND_SYSCALL_BEGIN,  // the thread leaves its CPU inside a system call; stack
	KIND_SYSCALL_END,    // it gets a CPU again
	KIND_SEND,           // bytes were given to a socket; stack
	KIND_SAMPLE,         // a sample of a CPU; stack
	KIND_STACK,          // a stack: struct stack_event
};

#define MAX_FRAMES 64
#define MAX_LIST 64

struct event {
	u64 time;
	u64 g;
	u64 other;
	u64 stack; // hash
	u64 pc;
	u32 tid;
	u8 kind, reason, skip, pad;
};

struct stack_event {
	u64 hash;
	u32 frames, pad;
	u64 pc[MAX_FRAMES + 2];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, u8);
} stacks SEC(".maps");

// The runtime's m of each thread that has started a goroutine.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, u64);
} threads SEC(".maps");

// Threads, by their task, that are off the CPU inside a system call.
struct blocked {
	u64 g;
	u32 tid, pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct blocked);
} blocked_tasks SEC(".maps");

// Counters, for each CPU: lost events, hits of probes.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

#define inline_function static __attribute__((always_inline)) inline

inline_function void count(u32 index)
{
	u64 *n = bpf_map_lookup_elem(&counters, &index);
	if (n)
		(*n)++;
}

inline_function u64 word_at(u64 address)
{
	u64 v = 0;
	bpf_probe_read_user(&v, sizeof(v), (void *)address);
	return v;
}

inline_function u64 goid_of(u64 g)
{
	return g ? word_at(g + g_goid) : 0;
}

inline_function u64 mix(u64 hash, u64 v)
{
	hash ^= v;
	hash *= 0x9E3779B97F4A7C15ULL;
	return hash ^ (hash >> 29);
}

struct start {
	u64 pc[2]; // before the frames that bp leads to; 0: none
	u64 bp;
};

struct frame {
	u64 bp, pc;
};

// stack_of stores a stack, once, and returns its hash. The first walk computes the hash, so that a stack is copied only if it is new.
static __attribute__((noinline)) u64 stack_of(struct start *s)
{
	struct frame f;
	u64 hash, bp;
	u8 one = 1;
	int i;

	if (!s)
		return 0;
	hash = mix(mix(0xcbf29ce484222325ULL, s->pc[0]), s->pc[1]);
	bp = s->bp;
	for (i = 0; i < MAX_FRAMES; i++) {
		if (!bp || (bp & 7) || bpf_probe_read_user(&f, sizeof(f), (void *)bp) || !f.pc)
			break;
		hash = mix(hash, f.pc);
		bp = f.bp;
	}
	if (!hash)
		hash = 1;
	if (bpf_map_lookup_elem(&stacks, &hash))
		return hash;
	struct stack_event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(0);
		return 0;
	}
	e->hash = hash;
	e->pc[0] = s->pc[0];
	e->pc[1] = s->pc[1];
	bp = s->bp;
	for (i = 0; i < MAX_FRAMES; i++) {
		if (!bp || (bp & 7) || bpf_probe_read_user(&f, sizeof(f), (void *)bp) || !f.pc)
			break;
		e->pc[2 + i] = f.pc;
		bp = f.bp;
	}
	e->frames = 2 + i;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	bpf_map_update_elem(&stacks, &hash, &one, BPF_ANY);
	return hash;
}

inline_function void emit(u8 kind, u64 g, u64 other, u64 stack, u64 pc, u8 reason, u8 skip, u32 tid)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(0);
		return;
	}
	e->time = bpf_ktime_get_ns();
	e->g = g;
	e->other = other;
	e->stack = stack;
	e->pc = pc;
	e->tid = tid;
	e->kind = kind;
	e->reason = reason;
	e->skip = skip;
	e->pad = 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

// is_other reports whether a probe was hit by another process that runs the same program.
inline_function int is_other(void)
{
	return bpf_get_current_pid_tgid() >> 32 != tgid;
}

inline_function u32 thread(void) { return (u32)bpf_get_current_pid_tgid(); }

// saved_stack is the stack of a goroutine that has left for the system stack of its thread.
inline_function u64 saved_stack(u64 g)
{
	struct start s = {};
	if (!g)
		return 0;
	s.pc[0] = word_at(g + g_sched_pc);
	s.bp = word_at(g + g_sched_bp);
	return stack_of(&s);
}

// curg_of returns the goroutine on whose behalf the running g, usually a system stack, acts; 0 if there is none.
inline_function u64 curg_of(u64 g)
{
	u64 m = word_at(g + g_m);
	return m ? word_at(m + m_curg) : 0;
}

// gopark(unlockf AX, lock BX, reason CX, traceReason DI, traceskip SI)
SEC("uprobe.multi")
int block(struct pt_regs *ctx)
{
	struct start s = {};
	if (is_other())
		return 0;
	count(1);
	s.pc[0] = ctx->ip;
	s.pc[1] = word_at(ctx->sp);
	s.bp = ctx->bp;
	emit(KIND_BLOCK, goid_of(ctx->r14), 0, stack_of(&s), 0, ctx->di, ctx->si, thread());
	return 0;
}

// execute(gp AX, inheritTime BX)
SEC("uprobe.multi")
int start(struct pt_regs *ctx)
{
	u32 tid = thread();
	if (is_other())
		return 0;
	count(1);
	if (!bpf_map_lookup_elem(&threads, &tid)) {
		u64 m = word_at(ctx->r14 + g_m);
		bpf_map_update_elem(&threads, &tid, &m, BPF_ANY);
	}
	emit(KIND_START, goid_of(ctx->ax), 0, 0, 0, 0, 0, tid);
	return 0;
}

// ready(gp AX, traceskip BX, next CX)
SEC("uprobe.multi")
int make_ready(struct pt_regs *ctx)
{
	u64 waker;
	if (is_other())
		return 0;
	count(1);
	waker = curg_of(ctx->r14);
	emit(KIND_READY, goid_of(ctx->ax), goid_of(waker), saved_stack(waker), 0, 0, ctx->bx, thread());
	return 0;
}

// injectglist(glist *gList AX)
SEC("uprobe.multi")
int make_list_ready(struct pt_regs *ctx)
{
	u64 g, waker, waker_id, stack;
	u32 tid;
	int i;
	if (is_other())
		return 0;
	count(1);
	g = word_at(ctx->ax);
	if (!g)
		return 0;
	tid = thread();
	waker = curg_of(ctx->r14);
	waker_id = goid_of(waker);
	stack = saved_stack(waker);
	for (i = 0; i < MAX_LIST && g; i++) {
		emit(KIND_READY, goid_of(g), waker_id, stack, 0, 0, 0, tid);
		g = word_at(g + g_schedlink);
	}
	return 0;
}

// newproc.func1, at CALL runqput(pp AX, gp BX, next CX)
SEC("uprobe.multi")
int create(struct pt_regs *ctx)
{
	u64 creator;
	if (is_other())
		return 0;
	count(1);
	creator = curg_of(ctx->r14);
	emit(KIND_CREATE, goid_of(ctx->bx), goid_of(creator), saved_stack(creator), word_at(ctx->bx + g_startpc), 0, 2, thread());
	return 0;
}

// gdestroy(gp AX)
SEC("uprobe.multi")
int destroy(struct pt_regs *ctx)
{
	if (is_other())
		return 0;
	count(1);
	emit(KIND_DESTROY, goid_of(ctx->ax), 0, 0, 0, 0, 0, thread());
	return 0;
}

// goschedImpl(gp AX, preempted BX)
SEC("uprobe.multi")
int stop(struct pt_regs *ctx)
{
	if (is_other())
		return 0;
	count(1);
	emit(KIND_STOP, goid_of(ctx->ax), 0, saved_stack(ctx->ax), 0, ctx->bx & 1, 0, thread());
	return 0;
}

// goyield_m(gp AX)
SEC("uprobe.multi")
int yield(struct pt_regs *ctx)
{
	if (is_other())
		return 0;
	count(1);
	emit(KIND_STOP, goid_of(ctx->ax), 0, saved_stack(ctx->ax), 0, 1, 0, thread());
	return 0;
}

// preemptPark(gp AX). 255 is for the reason "preempted", whose number depends on the release.
SEC("uprobe.multi")
int preempt(struct pt_regs *ctx)
{
	if (is_other())
		return 0;
	count(1);
	emit(KIND_BLOCK, goid_of(ctx->ax), 0, saved_stack(ctx->ax), 0, 255, 0, thread());
	return 0;
}

// coroswitch_m(gp AX)
SEC("uprobe.multi")
int coroutine(struct pt_regs *ctx)
{
	u64 c;
	if (is_other())
		return 0;
	count(1);
	c = word_at(ctx->ax + g_coroarg);
	if (c)
		emit(KIND_SWITCH, goid_of(ctx->ax), goid_of(word_at(c + coro_g)), 0, 0, 0, 0, thread());
	return 0;
}

// execute, to estimate the cost before the recording.
SEC("uprobe.multi")
int count_start(struct pt_regs *ctx)
{
	if (!is_other())
		count(1);
	return 0;
}

// current_g returns the goroutine of the current thread if its status is one of two.
inline_function u64 current_g(u32 tid, u32 status1, u32 status2)
{
	u32 status = 0;
	u64 g, *m = bpf_map_lookup_elem(&threads, &tid);
	if (!m)
		return 0;
	g = word_at(*m + m_curg);
	if (!g)
		return 0;
	bpf_probe_read_user(&status, sizeof(status), (void *)(g + g_status));
	status &= 0xfff; // without the bit for scanning, 0x1000
	return status == status1 || status == status2 ? g : 0;
}

#define G_RUNNING 2
#define G_SYSCALL 3

// syscall_skip is how many frames the runtime's tracer leaves out of the stack of a system call: the function that begins it. A stack
// from the registers has others as well, which the recorder leaves out by their names.
inline_function u8 syscall_skip(void) { return g_syscall_bp >= 0 ? 1 : 0; }

// syscall_stack is the stack of the current goroutine, which is in a system call or in C.
inline_function u64 syscall_stack(u64 g)
{
	struct start s = {};
	if (g_syscall_bp >= 0) {
		s.pc[0] = word_at(g + g_syscall_pc);
		s.bp = word_at(g + g_syscall_bp);
		return stack_of(&s);
	}
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	u64 sp = 0;
	bpf_probe_read_kernel(&sp, sizeof(sp), &regs->sp);
	bpf_probe_read_kernel(&s.bp, sizeof(s.bp), &regs->bp);
	s.pc[0] = word_at(sp); // the assembly function around the instruction has no frame
	return stack_of(&s);
}

struct raw_args {
	u64 args[3];
};

// sched_switch(preempt, prev, next): runs in the context of prev.
SEC("raw_tp/sched_switch")
int leave_cpu(struct raw_args *ctx)
{
	u64 next = ctx->args[2];
	struct blocked *b = bpf_map_lookup_elem(&blocked_tasks, &next);
	if (b) {
		emit(KIND_SYSCALL_END, b->g, 0, 0, 0, 0, 0, b->tid);
		bpf_map_delete_elem(&blocked_tasks, &next);
	}
	if (is_other())
		return 0;
	u32 tid = thread();
	u64 g = current_g(tid, G_SYSCALL, G_SYSCALL);
	if (!g)
		return 0;
	u64 prev = ctx->args[1];
	struct blocked n = { .g = goid_of(g), .tid = tid };
	emit(KIND_SYSCALL_BEGIN, n.g, 0, syscall_stack(g), 0, 0, syscall_skip(), tid);
	bpf_map_update_elem(&blocked_tasks, &prev, &n, BPF_ANY);
	return 0;
}

// sock_send_length(sk, ret, flags)
SEC("raw_tp/sock_send_length")
int send(struct raw_args *ctx)
{
	if (is_other())
		return 0;
	u32 tid = thread();
	u64 g = current_g(tid, G_SYSCALL, G_RUNNING);
	if (!g)
		return 0;
	count(1);
	emit(KIND_SEND, goid_of(g), 0, syscall_stack(g), 0, 0, syscall_skip(), tid);
	return 0;
}

struct sample_context {
	struct pt_regs regs;
	u64 period, address;
};

SEC("perf_event")
int sample(struct sample_context *ctx)
{
	struct start s = {};
	if (is_other())
		return 0;
	u32 tid = thread();
	u64 g = current_g(tid, G_RUNNING, G_SYSCALL);
	if (!g)
		return 0;
	if (ctx->regs.cs & 3) {
		s.pc[0] = ctx->regs.ip + 1; // the others are return addresses, behind their call
		s.bp = ctx->regs.bp;
	} else {
		struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
		bpf_probe_read_kernel(&s.pc[0], sizeof(u64), &regs->ip);
		s.pc[0]++;
		bpf_probe_read_kernel(&s.bp, sizeof(s.bp), &regs->bp);
	}
	emit(KIND_SAMPLE, goid_of(g), 0, stack_of(&s), 0, 0, 0, tid);
	return 0;
}
