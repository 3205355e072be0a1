// A redlockd inside this process, for tests of programs that take locks. It speaks the protocol, and has
// no Redis nodes. It needs the event loop: while that is blocked, it answers nothing.

/** A daemon, at a socket of its own: new Client(daemon.path). */
export interface Daemon {
  readonly path: string
  /** Answers each LOCK of a name (default: all) with an error of the protocol (default: 'HELD'), until accept(). */
  refuse(code?: string, name?: string): void
  accept(): void
  /** Takes a lock from its holders, which are told. The reason (default: 'quorum') is one of LOST. */
  lose(name: string, reason?: string): void
  /** Answers nothing until wake(). */
  hang(): void
  wake(): void
  /**
   * Ends all connections, and listens again after pause milliseconds; clients can resume their leases.
   * keep: the connections continue, as with systemd. forget: the leases are gone.
   */
  restart(options?: { pause?: number; keep?: boolean; forget?: boolean }): Promise<void>
  /** What holds a lock. */
  holders(name: string): { names: string[]; mode: string; slot: number; note: string; fence: number }[]
  /** How many wait for it. */
  waiters(name: string): number
  close(): Promise<void>
}

export function startDaemon(): Promise<Daemon>
/** For a test of node:test: the daemon is closed at its end. Until then, new Client() uses it. */
export function testDaemon(test: { after(f: () => Promise<void>): void }): Promise<Daemon>
