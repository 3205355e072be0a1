// Locks of redlockd, the lock daemon of this host. All durations are in milliseconds.
//
// A Client is one connection, for any number of locks; a process needs one. It connects when it is first
// used, and reconnects and resumes its leases when redlockd restarts. A lease is lost if it cannot be
// extended, or is revoked. Its signal is aborted before another client can hold the lock (by the guard, a
// fifth of the ttl), even if redlockd hangs, but not while the event loop is blocked. After that, the
// client asks the daemon, which may have extended the lease all the time. A write that is already in
// progress cannot be recalled: let the store refuse a fence smaller than one that it has seen.

declare global {
  interface SymbolConstructor {
    readonly asyncDispose: unique symbol
  }
}

/** Options of a lock. They are LOCK's in PROTOCOL. */
export interface LockOptions {
  /** How long to wait for the lock: 0 for not at all; undefined: without a bound. */
  wait?: number
  /** Ends the wait. */
  signal?: AbortSignal
  /** The lease time: how soon others get the lock if this host dies. Default: the daemon's. */
  ttl?: number
  /** 'shared': with other clients that say so. Default: 'exclusive'. */
  mode?: 'exclusive' | 'shared'
  /** For at most this many clients at a time. */
  slots?: number
  /** What keeps the lock: the connection (default), its ttl alone, or a process. */
  hold?: 'conn' | 'ttl' | 'pid'
  /** With hold: 'pid': the process. Default: this one. */
  pid?: number
  /** The longest holding time. */
  max?: number
  /** How long it stays taken from the grant on, even if it is released earlier. */
  min?: number
  /** How long before its deadline a lease ends if it cannot be extended. Default: a fifth of the ttl. */
  guard?: number
  /** How long it stays taken after this client died. */
  linger?: number
  /** The lease is lost if beat() is not called for this long. */
  beat?: number
  /** A text that list() and who() show. */
  note?: string
  /** Inside using() of the same names, mode and slots: returns that lease again. Each needs its release. Without it, the lock waits for itself, with a warning. */
  reentrant?: boolean
  /** How long a release waits for its answer. After that it goes on in the background, without an error. Default: patience, and then Unavailable. */
  releaseWait?: number
}

/** What a client tells: the connection ended, or a later one was made; redlockd was restarted and kept the connection; a lease goes on over a later connection, or is lost. */
export interface ClientEvents {
  disconnect: (error: Error) => void
  reconnect: () => void
  restart: () => void
  resume: (lease: Lease) => void
  lost: (lease: Lease, error: Lost) => void
}

/** The fields of a line of an answer, as PROTOCOL describes them, and its text for people. */
export type Line = { readonly text: string; readonly [field: string]: string }

/** The state of the daemon, as PROTOCOL describes STATUS, and of each node. */
export type Status = { readonly text: string; readonly nodeStates: readonly Line[]; readonly [field: string]: string | readonly Line[] }

/** A lock that is held. */
export interface Lease {
  readonly name: string
  readonly names: readonly string[]
  /** The daemon's name for the lease. It is a secret: console.log and JSON.stringify do not print it. */
  readonly id: string
  /** The fencing token. A later grant of the same lock has a larger one. */
  readonly fence: number
  /** The slot, from 1; 0 without slots. */
  readonly slot: number
  /** Is aborted when the lease is lost, with Lost as its reason (and as error, its name in node-redlock). */
  readonly signal: AbortSignal & { readonly error?: Error }
  readonly lost: boolean
  /** Why it ended; undefined while it is held. */
  readonly cause: RedlockdError | undefined
  /**
   * Throws Lost unless the lease is certainly held for longer than its guard. It reads the clock. Only if
   * the event loop was blocked until that time was over does it ask the daemon, and block for at most 2 s.
   */
  check(): void
  /** Like check(), without an exception. */
  owned(): boolean
  /** For how many milliseconds the lease is certainly held, unless it is extended; 0 from its guard before the deadline on. */
  remaining(): number
  /** Releases the lock. It rejects with Lost if the lease was lost before. */
  release(options?: {
    /** As releaseWait. */
    wait?: number
  }): Promise<void>
  /** Extends a lease of hold: 'ttl' now, or changes the ttl. */
  extend(ttl?: number): Promise<void>
  /** Tells the daemon that the work makes progress, for a lease with beat. */
  beat(): Promise<void>
  /** Makes an exclusive lease a shared one. */
  downgrade(): Promise<void>
  /** Releases the lock, unless that was done before: await using lease = await c.lock('x'). */
  [Symbol.asyncDispose](): Promise<void>
}

/** The work under a lock. It must stop when the signal is aborted. */
export type Routine<T> = (signal: AbortSignal & { readonly error?: Error }, lease: Lease) => Promise<T>

export class Client {
  /**
   * @param path the socket; default: $REDLOCK_SOCKET, or /run/redlockd/redlockd.sock
   * @param settings patience: how long calls wait for a redlockd that restarts or hangs, in addition to their wait (5000)
   */
  constructor(path?: string, settings?: { patience?: number })
  /** Takes a lock, or several, all or none. Two locks of the same name exclude each other. It rejects with Held, NoQuorum, Denied and so on, or with the reason of options.signal. */
  lock(names: string | readonly string[], options?: LockOptions): Promise<Lease>
  /** Takes a lock that is free; null: another client holds it. */
  tryLock(names: string | readonly string[], options?: Omit<LockOptions, 'wait'>): Promise<Lease | null>
  /** Takes a lock, calls routine, and releases. It rejects with Lost if the lock was lost. A number instead of options is the ttl, as in node-redlock. */
  using<T>(names: string | readonly string[], routine: Routine<T>): Promise<T>
  using<T>(names: string | readonly string[], options: LockOptions | number, routine: Routine<T>): Promise<T>
  using<T>(names: string | readonly string[], options: LockOptions | number, settings: LockOptions, routine: Routine<T>): Promise<T>
  /** The holders of a lock, on all hosts. */
  who(name: string): Promise<Line[]>
  /** Whether anybody holds a lock, on any host. */
  locked(name: string): Promise<boolean>
  /** The holders of a lock: now, and whenever others hold it. It asks every so many milliseconds (1000), so it may miss one that holds it for less. */
  watch(name: string, options?: { every?: number; signal?: AbortSignal }): AsyncGenerator<Line[], never>
  /** Revokes a lock, on all hosts: for administrators. Its holder may work on until it learns of it. It is done once at most: if the answer is lost, it rejects with Unknown. */
  force(name: string): Promise<{
    /** How many holders lost it; 0: it was free. */
    readonly holders: number
    /** Other locks of the same lease, which are lost too. */
    readonly also: readonly string[]
  }>
  /** What is held and waited for at this host's daemon. */
  list(): Promise<Line[]>
  status(): Promise<Status>
  /** How many connections were made after the first one. */
  readonly reconnects: number
  /** How many leases a later connection has resumed. */
  readonly resumed: number
  on<E extends keyof ClientEvents>(event: E, listener: ClientEvents[E]): this
  once<E extends keyof ClientEvents>(event: E, listener: ClientEvents[E]): this
  off<E extends keyof ClientEvents>(event: E, listener: ClientEvents[E]): this
  /** Ends all leases, and the connection. Calls that wait reject with Closed. */
  close(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** An error of redlockd: what happened, to which lock, and what to do. */
export class RedlockdError extends Error {
  /** Of the protocol: 'HELD', 'NOQUORUM' and so on; or empty. */
  readonly code: string
  readonly text: string
  /** The fields of the answer, such as host, pid and user of the holder. */
  readonly fields: { readonly [field: string]: string }
}
/** Another client held the lock for all of wait. */
export class Held extends RedlockdError {}
/** The process of hold: 'pid' already holds the lock or waits for it. */
export class Already extends Held {}
/** Too few nodes could vote. This does not tell whether the lock is held. */
export class NoQuorum extends RedlockdError {}
/** The lease ended without a release. From its deadline on, others can hold the lock. */
export class Lost extends RedlockdError {}
/** The lease was already released. */
export class NotHeld extends RedlockdError {}
/** Waiting would have closed a cycle of waiters on this host. */
export class Deadlock extends RedlockdError {}
/** The process that was to hold the lock (pid) ended during the wait. */
export class Cancelled extends RedlockdError {}
/** This user lacks the permission. */
export class Denied extends RedlockdError {}
/** A limit of the daemon's config is reached. */
export class Limit extends RedlockdError {}
/** A name or an option is not valid. */
export class Invalid extends RedlockdError {}
/** There is no daemon, and none came while the call waited, or it hangs. */
export class Unavailable extends RedlockdError {}
/** The daemon is stopping, and no other one has started. */
export class Shutdown extends Unavailable {}
/** The connection ended, or redlockd was restarted, during force(). See who() before you repeat it. */
export class Unknown extends RedlockdError {}
/** A defect of the daemon. See its log. */
export class Internal extends RedlockdError {}
/** close() was called on this client. */
export class Closed extends RedlockdError {}
