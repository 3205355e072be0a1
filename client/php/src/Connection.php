<?php

declare(strict_types=1);

namespace Redlockd;

/**
 * @internal The socket of a client. It alone uses its core.
 *
 * A persistent connection is there again in the next request of this PHP process. Then nothing of an earlier
 * request may be on it: neither a lock, nor a request whose answer is still to come, nor a part of an answer.
 *
 * - While it is used, it does not block; after a clean end it does. This mark survives a request whatever ends
 *   it, and the default is that it is not clean. Then the next request closes it, and connects afresh.
 * - At the end of a request (shutdown function or destructor), it is closed if a lock is held or an answer due.
 * - The first answer of a request is that to a HELLO with a random tag. If anything else comes, it is closed.
 */
final class Connection
{
    private const DETACHED_WAIT = 1.0; // how long check() waits for a RESUME
    private const CLEAN_UP = 1.0; // how long an end waits for releases that the end of the connection would not do

    /** @var array<string, true> sockets whose persistent connection is in use */
    private static array $persistent = [];
    /** @var array<int, \WeakReference<self>> */
    private static array $all = [];

    public Core $core;
    /** @var ?resource */
    private $stream = null;
    private int $pid;
    private bool $isPersistent = false;
    private bool $mayReuse = true;
    /** @var list<Lease> to be told that they are lost */
    private array $lost = [];

    public function __construct(private readonly string $path, private readonly float $patience, private readonly bool $wantsPersistent, private readonly ?\Closure $logger)
    {
        $this->reset();
        if (!self::$all) {
            register_shutdown_function(static function () {
                foreach (self::$all as $one) {
                    $one->get()?->endRequest();
                }
            });
        }
        self::$all[spl_object_id($this)] = \WeakReference::create($this);
    }

    public function __destruct()
    {
        unset(self::$all[spl_object_id($this)]);
        $this->endRequest();
    }

    private function reset(): void
    {
        $this->pid = getmypid();
        $this->core = new Core($this->path, $this->patience, $this);
        $this->lost = [];
    }

    // --- what callers use

    /** Begins a call, and waits for its end. An exception out of a signal handler or onLost abandons it. */
    public function ask(Call $call, \Closure $begin, ?float $limit = null): Call
    {
        $this->checkFork();
        $signals = Signals::mask();
        try {
            $begin();
            $end = $limit === null ? $this->core->giveUpAt($call) : $call->started + $limit;
            while ($call->state !== 'done') {
                if ($end !== null && $end <= Wire::clock()) {
                    $error = $this->core->hangs($call);
                    $this->core->abandon($call);
                    $call->error = $error;
                    break;
                }
                $this->step($end, static fn () => $call->state === 'done');
            }
            $this->flush();
            $this->tell();
            Signals::restore($signals);
        } catch (\Throwable $error) {
            Signals::mask();
            $this->core->abandon($call);
            $this->cleanUp(); // nobody else reads the grant that may be on its way
            try {
                Signals::restore($signals);
            } finally {
                throw $error;
            }
        }
        if ($call->error !== null) {
            throw Wire::again($call->error);
        }

        return $call;
    }

    /** Waits, but not for long, until what was abandoned is released. */
    private function cleanUp(): void
    {
        $end = Wire::clock() + self::CLEAN_UP;
        while ($this->core->isCleaning() && Wire::clock() < $end) {
            $this->step($end, null, false);
        }
        $this->flush();
    }

    /** Does what is due, and reads what is in the socket. It waits until a time for more. */
    public function poll(?float $until = null): void
    {
        $this->checkFork();
        $signals = Signals::mask();
        try {
            do {
                $this->step($until ?? 0.0);
                $this->tell();
            } while ($until !== null && Wire::clock() < $until && !$this->core->closed);
            $this->flush();
        } finally {
            Signals::restore($signals);
        }
    }

    /** Waits until it is known whether a lease is held. */
    public function settle(Lease $lease): void
    {
        $this->poll();
        $signals = Signals::mask();
        try {
            $end = Wire::clock() + self::DETACHED_WAIT;
            while ($lease->cause === null && ($lease->doubt !== null || ($lease->detached && Wire::clock() < min($end, $lease->endAt())))) {
                $this->step($lease->doubt ? null : $end);
            }
            $this->tell();
        } finally {
            Signals::restore($signals);
        }
    }

    /** Calls onLost of the leases that were lost. */
    public function tell(): void
    {
        while ($lease = array_shift($this->lost)) {
            ($lease->onLost)($lease);
        }
    }

    public function close(): void
    {
        $this->checkFork();
        $this->core->close();
        $this->hangUp();
        $this->tell();
    }

    /** Leaves nothing of this request on the connection, or ends it. */
    public function endRequest(): void
    {
        if ($this->pid !== getmypid() || $this->core->closed) {
            return;
        }
        try {
            $this->cleanUp();
            $isClean = $this->isPersistent && $this->stream !== null && $this->core->isClean();
        } catch (\Throwable) {
            $isClean = false;
        }
        if ($isClean) {
            stream_set_blocking($this->stream, true);
            $this->stream = null;
            unset(self::$persistent[$this->path]);
        }
        $this->core->close('the request has ended');
        $this->hangUp();
    }

    /** Makes a connection of its own of the parent's in a child. PHP tells nobody of a fork. */
    public function checkFork(): void
    {
        if ($this->pid === getmypid()) {
            return;
        }
        foreach ($this->core->leases as $lease) {
            $lease->forkAway();
        }
        if ($this->stream !== null) {
            fclose($this->stream); // without shutdown, which would end the parent's
            $this->stream = null;
        }
        unset(self::$persistent[$this->path]);
        $this->mayReuse = false;
        $this->reset();
    }

    // --- what the core calls

    public function hangUp(): void
    {
        if ($this->stream === null) {
            return;
        }
        $stream = $this->stream;
        $this->stream = null;
        Wire::quietly(static fn () => stream_socket_shutdown($stream, STREAM_SHUT_RDWR)); // also for processes that have inherited it
        fclose($stream); // also a persistent one
        if ($this->isPersistent) {
            unset(self::$persistent[$this->path]);
        }
    }

    public function lost(Lease $lease): void
    {
        if ($lease->onLost !== null) {
            $this->lost[] = $lease;
        }
    }

    public function log(string $level, string $text): void
    {
        if ($this->logger !== null) {
            ($this->logger)($level, "redlockd: $text");
        }
    }

    // --- I/O

    /**
     * Does what is due, and then waits until a time for the next event; 0: not at all; null: without a bound.
     *
     * @param ?\Closure(): bool $isDone ends it before the wait
     * @param bool              $isInterruptible a handler of a signal may throw
     */
    private function step(?float $until, ?\Closure $isDone = null, bool $isInterruptible = true): void
    {
        $core = $this->core;
        if ($this->stream !== null) {
            $this->read(); // before timers: it may have been there for long
        }
        $core->runTimers();
        if ($core->wantsConnection() && $core->dialAt <= Wire::clock()) {
            $this->dial();
        }
        $this->flush();
        if ($isDone !== null && $isDone()) {
            return;
        }
        $due = array_filter([$until, $core->nextTimer(), $core->wantsConnection() ? $core->dialAt : null], static fn ($at) => $at !== null);
        $timeout = $due ? max(0.0, min($due) - Wire::clock()) : 60.0;
        if ($timeout > 0) {
            if ($isInterruptible && Signals::areMasked()) {
                Signals::interruptibly(fn () => $this->await(min($timeout, Signals::LONGEST)));
            } else {
                $this->await($timeout);
            }
        }
    }

    /** Waits until the socket can be read, or written if something is to be. A signal ends it. */
    private function await(float $timeout): void
    {
        $micros = (int) ceil($timeout * 1e6);
        if ($this->stream === null) {
            usleep($micros);

            return;
        }
        $read = [$this->stream];
        $write = $this->core->out === '' ? [] : [$this->stream];
        $except = [];
        Wire::quietly(static function () use (&$read, &$write, &$except, $micros) {
            stream_select($read, $write, $except, intdiv($micros, 1_000_000), $micros % 1_000_000);
        });
    }

    private function read(): void
    {
        while ($this->stream !== null) {
            $stream = $this->stream;
            $data = Wire::quietly(static fn () => fread($stream, 1 << 16));
            if ($data !== false && $data !== '') {
                $this->core->data($data);
            } elseif (feof($stream)) {
                $this->hangUp();
                $this->core->ended(new Unavailable('', 'redlockd closed the connection (stopped or killed?)'));

                return;
            } else {
                $this->core->drained();

                return;
            }
        }
    }

    private function flush(): void
    {
        if ($this->stream !== null && $this->core->out !== '') {
            $stream = $this->stream;
            $written = Wire::quietly(fn () => fwrite($stream, $this->core->out));
            if ($written) {
                $this->core->out = substr($this->core->out, $written);
            } // else it is full, or the connection has ended, as read will say
        }
    }

    private function dial(): void
    {
        $this->isPersistent = $this->wantsPersistent && !isset(self::$persistent[$this->path]);
        $stream = $this->connect();
        if ($stream !== null && $this->isPersistent) {
            // A connection of an earlier request that did not end cleanly, or of one of which something is left.
            $state = stream_get_meta_data($stream);
            if (!$state['blocked'] || $state['unread_bytes'] > 0 || !$this->mayReuse) {
                fclose($stream);
                $stream = $this->connect();
            }
        }
        if ($stream === null) {
            return;
        }
        if ($this->isPersistent) {
            self::$persistent[$this->path] = true;
        }
        stream_set_blocking($stream, false);
        stream_set_write_buffer($stream, 0);
        $this->stream = $stream;
        $isReused = $this->isPersistent && $this->mayReuse;
        $this->mayReuse = false; // after a failure it connects afresh
        $this->core->connected($isReused);
    }

    /** @return ?resource */
    private function connect()
    {
        $flags = STREAM_CLIENT_CONNECT | ($this->isPersistent ? STREAM_CLIENT_PERSISTENT : 0);
        $stream = Wire::quietly(function () use ($flags, &$errno, &$why) {
            return strlen($this->path) > Wire::MAX_SOCKET_PATH ? false : stream_socket_client("unix://$this->path", $errno, $why, 1.0, $flags);
        });
        if ($stream !== false) {
            return $stream;
        }
        [$error, $isFinal] = Wire::dialError($this->path, (int) $errno, (string) $why);
        $this->core->attemptFailed($error, $isFinal && $this->core->links === 0);

        return null;
    }
}
