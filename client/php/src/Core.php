<?php

declare(strict_types=1);

namespace Redlockd;

/**
 * @internal What a client knows and decides: calls, leases, timers, reconnection. It does no I/O.
 *
 * A connection owns a Core: it connects, passes what it reads to data(), writes what is in out, and calls
 * runTimers() when nextTimer() has come. It reads what waits in the socket before it runs timers.
 *
 * A call may be sent more than once: on a new connection, and after BACK. Each sending has a tag of its own,
 * which is never used again, not even by another Core, and the first answer counts. A LOCK has an id=, so
 * that a second one gets the grant of the first.
 */
final class Core
{
    private const MIN_CHECK = 0.02; // the shortest time before the daemon is asked again
    private const LATE = 0.05; // a timer that runs so late shows that this process was stopped or busy
    private const LATE_ANSWER = 1.0; // how long the daemon has to answer then, if the deadline has passed
    private const RETRY_UNLOCK = 1.0; // between a refusal of a background UNLOCK and the next try
    private const RETRY_RESUME = 0.25; // between a temporary refusal and the next RESUME
    private const RESEND_PAUSE = 0.25; // between LIMIT as the answer to a resend and the next one
    private const MAX_LIMITS = 20; // such refusals of a call
    private const MAX_SHUTDOWNS = 3; // connections on which a call is refused with SHUTDOWN
    private const BYE_TIMEOUT = 1.0; // how long answers are read after the daemon said that it stops
    private const GREETING_TIMEOUT = 5.0; // for the answer to HELLO
    private const CLOCK_TOLERANCE = 0.03; // by which two readings of one clock may seem to differ
    private const MIN_PAUSE = 0.01; // between two attempts to connect
    private const MAX_PAUSE = 1.0;
    private const MAX_UNWRITTEN = 1 << 20; // bytes that stay unwritten if the daemon does not read

    /**
     * The daemon bounds the requests in flight on one connection (4,096 by default). Locks may wait for long,
     * and must leave room for the requests that end their wait.
     */
    private const ROOM = ['LOCK' => 3072, 'RESUME' => 256, 'other' => 512];

    public string $out = ''; // to be written
    public int $link = 0; // the number of the connection; 0: none that may be used
    public int $links = 0;
    public bool $greeting = false; // HELLO was sent on a new connection
    public int $resumed = 0;
    public bool $closed = false;
    /** @var array<string, Lease> by id: held, or still to be unlocked */
    public array $leases = [];
    public float $dialAt = 0.0; // when the next attempt to connect may be made
    private RedlockdException $why;
    private float $greetedAt = 0.0; // when HELLO was sent
    private bool $isReused = false; // an earlier request of this process has used the connection
    private float $ahead = 0.0; // by how much the daemon's clock is ahead of this one, at most
    private float $emptyAt = 0.0; // when the socket was last empty: what is read was written later
    private ?float $lostAt = null; // when the last connection ended
    private float $connectedAt = 0.0;
    private int $tries = 0;
    private int $fails = 0; // attempts that failed
    private bool $bye = false;
    private ?RedlockdException $refused = null; // why the daemon closes a new connection
    private ?Timer $byeTimer = null;
    private ?Timer $greetingTimer = null;
    private string $input = '';
    /** @var array<int, Call> */
    private array $flight = [];
    /** @var array<string, Call|string> a call, or why there is none: it was answered under another tag */
    private array $tags = [];
    private readonly string $tagPrefix;
    private int $tag = 0;
    /** @var array<string, int> */
    private array $busy = ['LOCK' => 0, 'RESUME' => 0, 'other' => 0];
    /** @var array<string, array<int, Call>> */
    private array $queues = ['LOCK' => [], 'RESUME' => [], 'other' => []];
    /** @var list<Timer> by time */
    private array $timers = [];
    private readonly string $idPrefix;
    private int $owners = 0;

    public function __construct(private readonly string $path, private readonly float $patience, private readonly Connection $connection)
    {
        $this->why = new Unavailable('', 'not connected yet');
        $this->idPrefix = bin2hex(random_bytes(6)) . '.';
        $this->tagPrefix = bin2hex(random_bytes(5)); // a tag has at most 16 letters or digits
    }

    // --- timers

    public function at(float $time, \Closure $run): Timer
    {
        $timer = new Timer($time, $run);
        $i = count($this->timers);
        while ($i > 0 && $this->timers[$i - 1]->at > $time) {
            $i--;
        }
        array_splice($this->timers, $i, 0, [$timer]);

        return $timer;
    }

    public function cancelTimer(?Timer $timer): void
    {
        if ($timer !== null && ($i = array_search($timer, $this->timers, true)) !== false) {
            array_splice($this->timers, $i, 1);
        }
    }

    /** Returns when runTimers has something to do. */
    public function nextTimer(): ?float
    {
        return $this->timers[0]->at ?? null;
    }

    public function runTimers(): void
    {
        $now = Wire::clock();
        while ($this->timers && $this->timers[0]->at <= $now) {
            (array_shift($this->timers)->run)();
        }
    }

    // --- calls

    /** Returns a call that takes a lock, with an owner of its own: all locks exclude each other. */
    public function lock(Request $request): Call
    {
        $call = new Call('LOCK', "$request->words$request->options", null, $request);
        $n = dechex(++$this->owners);
        $call->words .= " id=$this->idPrefix$n";
        if ($request->hold !== 'pid') {
            $call->owner = $request->hold === 'ttl' ? "$this->idPrefix$n" : $n; // another process may take a lease of hold=ttl over
            $call->words .= " owner=$call->owner";
        }

        return $call;
    }

    /** Returns a call about a lease. */
    public function about(string $verb, Lease $lease, string $options = ''): Call
    {
        return new Call($verb, "lease=$lease->id$options", $lease);
    }

    /** Starts a call. It may have ended before begin returns. */
    public function begin(Call $call): void
    {
        $call->until = $call->request ? ($call->request->wait === null ? null : $call->started + $call->request->wait) : $call->started;
        $call->fails = $this->fails;
        if ($this->closed) {
            $this->fail($call, new Closed($call->what, 'this client is closed'));
        } elseif (strlen($this->out) > self::MAX_UNWRITTEN && $call->verb !== 'UNLOCK' && $call->verb !== 'RESUME') {
            $this->fail($call, new Unavailable($call->what, 'redlockd hangs: it does not read its input'));
        } elseif ($this->busy[$call->room()] >= self::ROOM[$call->room()]) {
            $call->state = 'queued';
            $this->queues[$call->room()][spl_object_id($call)] = $call;
        } else {
            $this->start($call);
        }
    }

    /** Starts a call that nobody waits for. */
    public function beginInBackground(Call $call): void
    {
        $this->begin($call);
        if ($call->state === 'waiting') {
            $call->state = 'abandoned';
        }
    }

    /** Returns when the caller gives up, because the daemon hangs; null: never. */
    public function giveUpAt(Call $call): ?float
    {
        if ($call->request === null) {
            return $call->started + $this->patience;
        }

        return $call->request->wait === null ? null : $call->started + $call->request->wait + $this->patience;
    }

    /** Returns the error of a caller that gave up. */
    public function hangs(Call $call): RedlockdException
    {
        if ($this->link === 0 && $this->fails > $call->fails) {
            return Wire::again($this->why, $call->what);
        }
        if ($call->isOnce() && $call->sentOn > 0) {
            return new Unknown($call->what, 'redlockd did not answer: ask who() before you repeat it');
        }

        return new Unavailable($call->what, "redlockd at $this->path does not answer: it hangs, or its nodes do (redlock status)");
    }

    /** Ends a call whose caller has left. What it is granted is released. */
    public function abandon(Call $call): void
    {
        if ($call->state === 'done') {
            if ($call->handle !== null && $call->handle->cause === null) {
                $this->unlockInBackground($call->handle);
            }
        } elseif ($call->state === 'new' || $call->state === 'queued') {
            unset($this->queues[$call->room()][spl_object_id($call)]);
            $call->state = 'done';
        } elseif ($call->state === 'waiting') {
            $call->state = 'abandoned';
            if ($call->request) {
                $this->cancel($call->tags);
            }
            if (!$call->tags && !$this->shouldSend($call)) {
                $this->end($call);
            }
        }
    }

    private function start(Call $call): void
    {
        $this->busy[$call->room()]++;
        $call->state = 'waiting';
        $this->flight[spl_object_id($call)] = $call;
        if ($this->link) {
            if (!$this->awaitsResume($call)) {
                $this->send($call);
            }

            return;
        }
        $this->planFailure($call);
        $this->dialAt = min($this->dialAt, Wire::clock() + ($this->links ? self::MIN_PAUSE : 0));
    }

    /** Tells whether the daemon may not know the call's lease yet. */
    private function awaitsResume(Call $call): bool
    {
        return $call->isOfLease() && $call->lease->detached;
    }

    private function nextTag(): string
    {
        return $this->tagPrefix . base_convert((string) $this->tag++, 10, 36);
    }

    private function send(Call $call): void
    {
        $tag = $this->nextTag();
        $call->resent = $call->resent || $call->sentOn > 0;
        $call->tags[$tag] = $tag;
        $call->sentOn = $this->link;
        $call->lines = []; // the whole answer will come again
        $this->tags[$tag] = $call;
        $wait = '';
        if ($call->request && $call->state === 'abandoned') {
            $wait = ' wait=0'; // it only finds out what to release
        } elseif ($call->request && $call->request->wait !== null) {
            $wait = ' wait=' . max(0, (int) round(($call->started + $call->request->wait - Wire::clock()) * 1000));
        }
        $this->out .= "@$tag $call->verb $call->words$wait\n";
    }

    /** Tells whether a new connection has to send the call. */
    private function shouldSend(Call $call): bool
    {
        if ($call->state === 'abandoned') {
            return $call->verb === 'UNLOCK' || ($call->request?->hold === 'pid' && $call->sentOn > 0);
        }

        return $call->verb === 'RESUME' ? $call->lease->isTakenOver : !($call->isOnce() && $call->sentOn > 0);
    }

    /** Ends the flight of a call. */
    private function end(Call $call): void
    {
        $call->state = 'done';
        if (isset($this->flight[spl_object_id($call)])) {
            unset($this->flight[spl_object_id($call)]);
            $this->busy[$call->room()]--;
            $queue = &$this->queues[$call->room()];
            if ($queue) {
                $next = reset($queue);
                unset($queue[spl_object_id($next)]);
                $this->start($next);
            }
        }
    }

    private function fail(Call $call, RedlockdException $error): void
    {
        $call->error = $error;
        $this->forgetTags($call);
        if ($call->verb === 'UNLOCK' && $call->lease && $call->state !== 'new' && !$this->closed) {
            $this->unlockLater($call->lease);
        } elseif ($call->verb === 'CHECK' && $call->lease) {
            $call->lease->checking = false;
        }
        $this->end($call);
    }

    private function forgetTags(Call $call, string $answered = ''): void
    {
        foreach ($call->tags as $tag) {
            if ($tag === $answered) {
                unset($this->tags[$tag]);
            } else {
                $this->tags[$tag] = $call->request ? 'stray LOCK' : 'stray';
            }
        }
        $call->tags = [];
    }

    /** @param array<string, string> $tags */
    private function cancel(array $tags): void
    {
        foreach ($tags as $tag) {
            $this->out .= "CANCEL $tag\n";
        }
    }

    // --- connections

    /** Tells whether a lease must be resumed, or a call waits. */
    public function wantsConnection(): bool
    {
        if ($this->link || $this->greeting || $this->closed) {
            return false;
        }
        foreach ($this->flight as $call) {
            if ($this->shouldSend($call)) {
                return true;
            }
        }
        foreach ($this->leases as $lease) {
            if ($lease->detached || $lease->unwatched) {
                return true;
            }
        }

        return false;
    }

    /** Tells whether nothing of this Core is left on the connection: no lease, and no request without its answer. */
    public function isClean(): bool
    {
        return $this->link > 0 && !$this->flight && !$this->leases && !$this->tags && $this->out === '' && $this->input === '' && !$this->bye;
    }

    /** Is called when there is a connection: greets the daemon. */
    public function connected(bool $isReused): void
    {
        $this->links++;
        $this->greeting = true;
        $this->isReused = $isReused;
        $this->bye = false;
        $this->refused = null;
        $this->input = '';
        $tag = $this->nextTag();
        $this->tags = [$tag => 'HELLO'];
        $this->out = "@$tag HELLO 1\n";
        $this->greetedAt = $this->emptyAt = Wire::clock();
        $this->greetingTimer = $this->at($this->greetedAt + self::GREETING_TIMEOUT, function () {
            $this->connection->hangUp();
            $this->ended(new Unavailable('', "redlockd at $this->path does not answer: it hangs"));
        });
    }

    /** @param array{tag: string, kind: string, code: string, fields: array<string, string>, text: string} $parsed */
    private function greeted(array $parsed): void
    {
        if ($parsed['kind'] === 'BACK') { // the answer may be lost, or may come twice
            $this->redial();
        } elseif ($parsed['kind'] === 'ERR') {
            $this->refused = Wire::refusal('', $parsed);
            if ($parsed['tag'] !== '') {
                $this->connection->hangUp();
                $this->ended($this->refused);
            }
        } elseif ($parsed['kind'] === 'OK' && isset($this->tags[$parsed['tag']])) {
            $this->noteClock(Wire::number($parsed['fields'], 'clock') / 1000);
            $this->tags = [];
            $this->use();
        } elseif ($parsed['kind'] === 'BYE') {
            $this->bye = true;
        } elseif ($parsed['tag'] !== '' || $parsed['kind'] === 'OK') {
            throw new ProtocolError('an answer without a request');
        }
    }

    /** Connects again at once. */
    private function redial(): void
    {
        $this->connection->hangUp();
        $this->greeting = false;
        $this->cancelTimer($this->greetingTimer);
        $this->dialAt = 0.0;
    }

    /**
     * Compares the clocks: they differ if the two processes are in different time namespaces. Unless one clock
     * can have made the daemon's reading after HELLO was sent, the earliest deadlines count.
     */
    private function noteClock(float $daemons): void
    {
        $ahead = $daemons + 0.001 - $this->greetedAt; // $daemons is in whole milliseconds
        $isSame = -self::CLOCK_TOLERANCE <= $ahead && $daemons <= Wire::clock() + self::CLOCK_TOLERANCE;
        $this->ahead = $isSame || $daemons <= 0 ? 0.0 : $ahead + Wire::LEAD; // that of this clock must not count
    }

    /** Makes a new connection the current one, and sends on it what is in flight. */
    private function use(): void
    {
        $this->cancelTimer($this->greetingTimer);
        $this->greeting = false;
        $this->isReused = false;
        $this->link = $this->links;
        $this->connectedAt = Wire::clock();
        if ($this->lostAt !== null) {
            $this->connection->log('info', "reconnected to redlockd at $this->path");
        }
        foreach ($this->leases as $lease) {
            if ($lease->detached || $lease->unwatched) {
                $this->resume($lease);
            }
        }
        foreach ($this->flight as $call) {
            if ($call->sentOn !== $this->link && $this->shouldSend($call) && !$this->awaitsResume($call)) {
                $this->send($call);
                if ($call->state === 'abandoned' && $call->request) {
                    $this->cancel($call->tags);
                }
            }
        }
    }

    private static function pause(int $tries): float
    {
        return min(self::MIN_PAUSE * 2 ** min(max($tries, 0), 10), self::MAX_PAUSE) * mt_rand(500, 1000) / 1000;
    }

    /** Is called when the driver could not connect. $isFinal: another attempt would not help. */
    public function attemptFailed(RedlockdException $error, bool $isFinal = false): void
    {
        $this->why = $error;
        $this->fails++;
        $this->tries++;
        $this->dialAt = Wire::clock() + self::pause($this->tries - 1);
        if ($isFinal) {
            foreach ($this->flight as $call) {
                if ($call->state === 'waiting') {
                    $this->fail($call, Wire::again($error, $call->what));
                }
            }
        }
        $this->failExpired();
    }

    /**
     * Is called when the connection has ended. Leases that the daemon keeps until they are resumed go on.
     * $here: this side has ended it, so that the daemon releases them.
     */
    public function ended(RedlockdException $error, bool $here = false): void
    {
        if ($this->greeting && $this->isReused && $this->refused === null) {
            $this->isReused = false;
            $this->redial(); // the daemon has closed it since the last request, or something is left on it

            return;
        }
        if ($this->refused) {
            $error = new Unavailable('', 'redlockd closed the connection: ' . $this->refused->text);
        } elseif ($this->bye) {
            $error = new Shutdown('', 'redlockd is stopping, and no other one has started');
        }
        if ($this->greeting) {
            $this->cancelTimer($this->greetingTimer);
            $this->greeting = false;
            $this->attemptFailed($this->refused ?? $error, $this->refused !== null && $this->refused->errorCode !== 'SHUTDOWN');

            return;
        }
        if (!$this->link || $this->closed) {
            return;
        }
        $now = Wire::clock();
        if ($this->leases || $this->flight) {
            $this->connection->log('info', $error->getMessage());
        }
        $this->link = 0;
        $this->out = '';
        $this->tags = [];
        $this->cancelTimer($this->byeTimer);
        $this->byeTimer = null;
        $this->why = $error;
        $this->lostAt = $now;
        $this->tries = $now - $this->connectedAt < self::MAX_PAUSE ? $this->tries + 1 : 0;
        $this->dialAt = $now + ($this->tries > 1 ? self::pause($this->tries) : 0);
        foreach ($this->leases as $lease) {
            if ($lease->cause !== null) {
                continue;
            }
            if ($here && $lease->hold === 'conn') {
                $this->finish($lease, new Lost($lease->what, $error->text));
            }
            $lease->detached = $lease->cause === null && $lease->hold === 'conn';
            $lease->unwatched = $lease->cause === null && $lease->hold === 'pid';
        }
        foreach ($this->flight as $call) {
            $this->outlast($call, $error, $here);
        }
        $this->queues['RESUME'] = [];
    }

    /** Handles a call whose connection has ended. */
    private function outlast(Call $call, RedlockdException $error, bool $here): void
    {
        $call->tags = [];
        $call->fails = $this->fails;
        if (($call->verb === 'RESUME' && !$call->lease->isTakenOver) || ($call->state === 'abandoned' && !$this->shouldSend($call))) {
            if ($call->verb === 'CHECK' && $call->lease) {
                $call->lease->checking = false;
            }
            $this->end($call);
        } elseif ($call->isOnce() && $call->sentOn > 0) {
            $this->fail($call, new Unknown($call->what, 'the connection ended before the answer: ask who() whether it was done'));
        } elseif ($here && $call->state === 'waiting') {
            $this->fail($call, new Unavailable($call->what, $error->text));
        } else {
            $this->planFailure($call);
        }
    }

    /** Lets a call fail when it has waited long enough for a connection. */
    private function planFailure(Call $call): void
    {
        if ($call->state === 'abandoned' && $call->lease?->hold === 'pid') {
            $call->until = null; // otherwise the lock would stay with the process
        }
        if ($call->until === null) {
            return;
        }
        if ($this->lostAt !== null) {
            $call->until = max($call->until, $this->lostAt + $this->patience);
        }
        $this->at($call->until, $this->failExpired(...));
    }

    /** Fails the calls that have waited long enough for a connection, and for one attempt. */
    private function failExpired(): void
    {
        if ($this->link) {
            return;
        }
        $now = Wire::clock();
        foreach ($this->flight as $call) {
            if ($call->until !== null && $call->until <= $now && $this->fails > $call->fails) {
                $this->fail($call, Wire::again($this->why, $call->what));
            }
        }
    }

    /** Notes that nothing is left to be read. */
    public function drained(): void
    {
        $this->emptyAt = Wire::clock();
    }

    /** Handles what was read. */
    public function data(string $received): void
    {
        $lines = explode("\n", $this->input . $received);
        $this->input = array_pop($lines);
        $link = $this->links;
        $greeting = $this->greeting;
        try {
            foreach ($lines as $raw) {
                if ($raw !== '') {
                    $this->line(Wire::parse($raw));
                }
                if ($link !== $this->links || !($this->link || $this->greeting)) {
                    return; // this connection is no longer used
                }
            }
            if (strlen($this->input) > Wire::MAX_LINE) {
                throw new ProtocolError('a line does not end');
            }
        } catch (ProtocolError $error) {
            $text = "the peer at $this->path does not speak the protocol of redlockd ({$error->getMessage()}): is it redlockd's socket?";
            $this->connection->hangUp();
            if ($greeting && $this->greeting && !$this->isReused) {
                $this->refused = new Unavailable('', $text);
            }
            $this->ended(new Unavailable('', $text), true);
        }
    }

    /** @param array{tag: string, kind: string, code: string, fields: array<string, string>, text: string} $parsed */
    private function line(array $parsed): void
    {
        if ($this->greeting) {
            $this->greeted($parsed);
        } elseif ($parsed['kind'] === 'LOST') {
            $lease = $this->leases[$parsed['fields']['lease'] ?? ''] ?? null;
            if ($lease !== null) {
                $this->lostByDaemon($lease, $parsed);
            }
        } elseif ($parsed['kind'] === 'BYE') {
            $this->stopping();
        } elseif ($parsed['kind'] === 'BACK') { // answers may be lost, or may still come
            foreach ($this->flight as $call) {
                if ($call->tags && !$call->isOnce()) {
                    $this->send($call);
                }
            }
        } elseif ($parsed['tag'] !== '') {
            $this->answer($parsed);
        } // else the answer to CANCEL, which says nothing, or an event of a later version
    }

    /** @param array{tag: string, kind: string, code: string, fields: array<string, string>, text: string} $parsed */
    private function answer(array $parsed): void
    {
        $tag = $parsed['tag'];
        $call = $this->tags[$tag] ?? null;
        if (is_string($call)) {
            if ($parsed['kind'] !== '-') {
                unset($this->tags[$tag]);
                $id = $parsed['fields']['lease'] ?? '';
                if ($call === 'stray LOCK' && $parsed['kind'] === 'OK' && $id !== '' && !isset($this->leases[$id])) {
                    $this->beginInBackground(new Call('UNLOCK', "lease=$id"));
                }
            }

            return;
        }
        if ($call === null) {
            throw new ProtocolError('an answer without a request: tag ' . substr($tag, 0, 20));
        }
        if ($parsed['kind'] === '-') {
            $call->lines[] = $parsed['fields'];

            return;
        }
        if ($parsed['kind'] === 'ERR' && $this->sendsAgain($call, $parsed)) {
            return;
        }
        $others = array_diff_key($call->tags, [$tag => $tag]);
        $this->forgetTags($call, $tag);
        if ($parsed['kind'] === 'OK') {
            $call->reply = $parsed['fields'];
            $call->replyText = $parsed['text'];
        } else {
            $call->error = Wire::refusal($call->what, $parsed);
            if ($call->request) {
                $this->cancel($others); // so that none of them goes on waiting
            }
        }
        $this->settleCall($call, $parsed);
        $this->end($call);
    }

    /**
     * Tells whether the caller does not get a refusal, because the request will be sent again. SHUTDOWN with
     * drain= is an answer: the daemon keeps the connection and extends its leases.
     *
     * @param array{tag: string, kind: string, code: string, fields: array<string, string>, text: string} $parsed
     */
    private function sendsAgain(Call $call, array $parsed): bool
    {
        $tag = $parsed['tag'];
        if ($parsed['code'] === 'SHUTDOWN' && !isset($parsed['fields']['drain']) && $this->shouldSend($call) && $call->shutdowns < self::MAX_SHUTDOWNS) {
            $call->shutdowns++;
            unset($call->tags[$tag], $this->tags[$tag]);
            $this->stopping(); // the next connection sends it

            return true;
        }
        if ($parsed['code'] === 'LIMIT' && $call->resent && $call->limits < self::MAX_LIMITS && $call->verb !== 'RESUME') {
            $call->limits++;
            unset($call->tags[$tag], $this->tags[$tag]);
            $link = $this->link;
            $this->at(Wire::clock() + self::RESEND_PAUSE, function () use ($call, $link) {
                if ($this->link === $link && ($call->state === 'waiting' || $call->state === 'abandoned')) {
                    $this->send($call);
                }
            });

            return true;
        }

        return false;
    }

    /** Is called when the daemon says that it stops, and bounds the wait for its end. */
    private function stopping(): void
    {
        if (!$this->bye) {
            $this->bye = true;
            $this->byeTimer = $this->at(Wire::clock() + self::BYE_TIMEOUT, function () {
                $this->connection->hangUp();
                $this->ended($this->why);
            });
        }
    }

    // --- leases

    /**
     * Handles the answer to a call.
     *
     * @param array{tag: string, kind: string, code: string, fields: array<string, string>, text: string} $parsed
     */
    private function settleCall(Call $call, array $parsed): void
    {
        if ($call->request) {
            if ($call->reply !== null) {
                $this->granted($call, $call->reply);
            }
        } elseif ($call->lease) {
            match ($call->verb) {
                'UNLOCK' => $this->unlocked($call, $call->lease),
                'RESUME' => $call->lease->isTakenOver ? $this->takeoverAnswered($call, $call->lease) : $this->resumeAnswered($call, $call->lease, $parsed['fields']),
                default => $this->checked($call, $call->lease, $parsed),
            };
        }
    }

    /** @param array<string, string> $reply */
    private function granted(Call $call, array $reply): void
    {
        if (!isset($reply['lease'], $reply['deadline'])) {
            throw new ProtocolError('a grant without its fields');
        }
        $lease = Lease::granted($this->connection, $call, $reply);
        $this->leases[$lease->id] = $lease;
        $now = Wire::clock();
        $lease->extended($reply, $now, $this->ahead, $this->emptyAt);
        if ($call->request->max > 0 && $call->request->hold !== 'ttl') {
            $lease->bound = $now + $call->request->max * 0.99 - 0.02; // the daemon counts from before it asked the nodes
        }
        if ($call->state === 'abandoned') {
            $this->unlockInBackground($lease);
        } elseif ($lease->endAt() <= $now) {
            $call->error = $this->expired($lease);
            $this->unlockInBackground($lease);
        } else {
            $call->handle = $lease;
            $this->arm($lease, $now);
        }
    }

    /** Sets the timer to half of the time that is left: the process may be suspended meanwhile. */
    private function arm(Lease $lease, float $now): void
    {
        $lease->doubt = null;
        $this->cancelTimer($lease->timer);
        $left = $lease->endAt() - $now;
        $lease->timer = $this->at($now + ($left / 2 >= self::MIN_CHECK ? $left / 2 : $left), fn () => $this->tick($lease));
    }

    private function tick(Lease $lease): void
    {
        $now = Wire::clock();
        if ($lease->cause !== null) {
            if ($lease->unlockDue) {
                $this->beginUnlock($lease);
            }

            return;
        }
        $left = $lease->endAt() - $now;
        if ($left <= 0) {
            $isLate = $now - $lease->timer->at > self::LATE;
            if (!($isLate && $this->askAgain($lease, $now))) {
                $this->expire($lease);
            }

            return;
        }
        if ($left >= 2 * self::MIN_CHECK && $lease->hold !== 'ttl' && $this->link && !$lease->checking && !$lease->detached) {
            $lease->checking = true;
            $this->beginInBackground($this->about('CHECK', $lease));
        }
        $this->arm($lease, $now);
    }

    /**
     * Asks whether a lease is still held whose end this process noticed late: the daemon may have extended it
     * all the time. Until the answer it is in doubt. It returns false if that is no use.
     */
    private function askAgain(Lease $lease, float $now): bool
    {
        if ($lease->doubt !== null || $lease->hold === 'ttl' || !$this->link) {
            return false;
        }
        $lease->doubt = $this->about('CHECK', $lease);
        $this->beginInBackground($lease->doubt);
        $this->cancelTimer($lease->timer);
        $left = $lease->deadline - $now;
        $lease->timer = $this->at($now + ($left > 0 ? $left / 2 : self::LATE_ANSWER), fn () => $this->tick($lease));

        return true;
    }

    /** Returns the cause of a lease that ended without a report of the daemon. */
    public function expired(Lease $lease): Lost
    {
        $ms = round($lease->guard * 1000);
        $text = match (true) {
            $lease->hold === 'ttl' => "its ttl ends in less than the guard of $ms ms, and extend() was not called",
            $lease->bound > 0 && $lease->deadline >= $lease->bound => "its maximum holding time ends in less than the guard of $ms ms",
            $this->link === 0 => "not confirmed $ms ms before its deadline: there is no connection: {$this->why->text}",
            default => "not confirmed $ms ms before its deadline: this process was stopped or did not call check(), or redlockd hangs or could not extend it",
        };

        return new Lost($lease->what, "lost: $text");
    }

    /**
     * Ends a lease that the daemon has not reported as lost. The daemon may still extend it. It is unlocked at
     * the deadline, and not before, because its holder may still be stopping.
     */
    public function expire(Lease $lease): void
    {
        if ($lease->cause === null) {
            $isDue = $lease->maybeKept || !$lease->detached;
            $this->finish($lease, $this->expired($lease), !$isDue);
            if ($isDue) {
                $this->unlockAt($lease, $lease->deadline + Wire::LEAD);
            }
        }
    }

    /** Ends a lease. Only the first call counts. */
    private function finish(Lease $lease, RedlockdException $cause, bool $forget = true): void
    {
        if ($forget) {
            unset($this->leases[$lease->id]);
        }
        if ($forget || $lease->cause === null) {
            $this->cancelTimer($lease->timer);
            $lease->unlockDue = false;
        }
        if ($lease->cause !== null) {
            return;
        }
        $lease->cause = $cause;
        $lease->doubt = null;
        $wasDetached = $lease->detached;
        $lease->detached = $lease->unwatched = false;
        if ($wasDetached) {
            foreach ($this->flight as $call) {
                if ($call->lease === $lease && $call->isOfLease() && !$call->tags) {
                    $this->fail($call, $cause);
                }
            }
        }
        if (!$cause instanceof Released) {
            if (!$this->closed) {
                $this->connection->log('warning', $cause->getMessage());
            }
            $this->connection->lost($lease);
        }
    }

    /** @param array{tag: string, kind: string, code: string, fields: array<string, string>, text: string} $parsed */
    private function lostByDaemon(Lease $lease, array $parsed): void
    {
        $reason = $parsed['fields']['reason'] ?? '';
        $isForced = $reason === 'forced' && count($lease->names) > 1;
        $this->finish($lease, new Lost($lease->what, $parsed['text'] ?: "lost: reason=$reason", $parsed['fields']), !$isForced);
        if ($isForced && !$lease->unlocking) { // the daemon keeps its other names until the holder has stopped
            $this->unlockAt($lease, $lease->deadline + Wire::LEAD);
        }
    }

    private function unlockAt(Lease $lease, float $time): void
    {
        $lease->unlockDue = true;
        $this->cancelTimer($lease->timer);
        $lease->timer = $this->at($time, fn () => $this->tick($lease));
    }

    /** Unlocks again after a failure, unless the lease expires by itself. */
    private function unlockLater(Lease $lease): void
    {
        if ($lease->hold === 'pid' || $this->link) {
            $this->unlockAt($lease, Wire::clock() + self::RETRY_UNLOCK);
        } else {
            $this->finish($lease, $lease->cause ?? $this->expired($lease));
        }
    }

    /** Begins an UNLOCK. It fails if there is nothing to unlock. */
    public function release(Call $call, Lease $lease): void
    {
        if ($lease->cause === null) {
            $lease->unlocking = true;
            $this->finish($lease, new Released($lease->what, 'not held: it is already released'), false);
            $this->begin($call);

            return;
        }
        if (!$lease->cause instanceof Released) {
            if ($lease->unlockDue) { // the holder has stopped, so do not wait for the deadline
                $this->beginUnlock($lease);
            }
            $lease->unlocking = true;
        }
        $this->fail($call, Wire::again($lease->cause));
    }

    private function beginUnlock(Lease $lease): void
    {
        $lease->unlockDue = false;
        $lease->unlocking = true;
        $this->beginInBackground($this->about('UNLOCK', $lease));
    }

    /** Unlocks a lease that nobody uses. */
    public function unlockInBackground(Lease $lease): void
    {
        $this->finish($lease, new Released($lease->what, 'not held: it is already released'), false);
        $this->beginUnlock($lease);
    }

    private function unlocked(Call $call, Lease $lease): void
    {
        $error = $call->error;
        if ($error === null || ($error->errorCode === 'NOTHELD' && $call->resent)) {
            $call->error = null; // an earlier UNLOCK released it
        } elseif ($error->errorCode === 'NOTHELD') {
            $call->error = new Lost($call->what, "lost: redlockd no longer knows it ($error->text)", $error->fields);
        } elseif ($error->errorCode !== 'LOST') {
            $lease->unlocking = false;
            $this->unlockAt($lease, Wire::clock() + self::RETRY_UNLOCK);

            return;
        }
        $this->finish($lease, $lease->cause ?? $this->expired($lease));
    }

    /**
     * Handles the answer to CHECK, EXTEND or BEAT.
     *
     * @param array{tag: string, kind: string, code: string, fields: array<string, string>, text: string} $parsed
     */
    private function checked(Call $call, Lease $lease, array $parsed): void
    {
        $error = $call->error;
        $lease->checking = false;
        if ($lease->cause !== null) {
            $call->error = $lease->cause;
        } elseif ($error === null) {
            if ($call->verb === 'EXTEND' && isset($parsed['fields']['ttl']) && str_contains($call->words, ' ttl=')) {
                $lease->forgetTtl();
            }
            $now = Wire::clock();
            $lease->extended($parsed['fields'], $now, $this->ahead, $this->emptyAt);
            if ($lease->endAt() > $now) {
                $this->arm($lease, $now);
            } elseif ($lease->doubt === null && $call->state === 'abandoned' && $this->askAgain($lease, $now)) {
                // the answer has waited to be read
            } elseif ($lease->doubt === null || $lease->doubt === $call) {
                $this->expire($lease);
                $call->error = $lease->cause;
            }
        } elseif ($error->errorCode === 'LOST') {
            $this->lostByDaemon($lease, $parsed);
            $call->error = $lease->cause;
        } elseif ($error->errorCode === 'NOTHELD') {
            $this->finish($lease, new Lost($lease->what, "lost: redlockd no longer knows it ($error->text)", $error->fields));
            $call->error = $lease->cause;
        }
    }

    /** Returns the call that continues a lease over this connection. */
    public function resumption(Lease $lease): Call
    {
        return new Call('RESUME', Wire::names($lease->names) . " lease=$lease->id" . ($lease->owner === '' ? '' : " owner=$lease->owner"), $lease);
    }

    private function resume(Lease $lease): void
    {
        $this->beginInBackground($this->resumption($lease));
    }

    /** Handles the answer to the RESUME of a lease of another process. */
    private function takeoverAnswered(Call $call, Lease $lease): void
    {
        if ($call->error !== null || $call->state === 'abandoned') { // hold=ttl: it stays as it was
            if ($call->error instanceof NotHeld) {
                $call->error = new Lost($call->what, "lost: redlockd no longer knows it ({$call->error->text})", $call->error->fields);
            }

            return;
        }
        $lease->isTakenOver = false;
        $this->leases[$lease->id] = $lease;
        $now = Wire::clock();
        $lease->extended($call->reply, $now, $this->ahead, $this->emptyAt);
        $this->arm($lease, $now);
        $call->handle = $lease;
    }

    /** @param array<string, string> $fields */
    private function resumeAnswered(Call $call, Lease $lease, array $fields): void
    {
        $error = $call->error;
        if ($error === null) {
            $this->resumeGranted($lease, $fields);
        } elseif ($lease->hold === 'pid' && !in_array($error->errorCode, ['LIMIT', 'NOTHELD', 'LOST'], true)) {
            $lease->unwatched = false; // after NOQUORUM the daemon reports a loss
        } elseif (in_array($error->errorCode, ['NOTHELD', 'LOST', 'VERB'], true)) {
            $this->finish($lease, new Lost($lease->what, "lost: the connection ended, and a new one could not resume it ($error->text)", $error->fields));
        } else {
            $lease->maybeKept = true;
            if ($lease->cause !== null) {
                $this->unlockEnded($lease);

                return;
            }
            $link = $this->link;
            $this->at(Wire::clock() + self::RETRY_RESUME, function () use ($lease, $link) {
                if ($this->link === $link && ($lease->detached || $lease->unwatched)) {
                    $this->resume($lease);
                }
            });
        }
    }

    /** @param array<string, string> $fields */
    private function resumeGranted(Lease $lease, array $fields): void
    {
        if ($lease->cause !== null) {
            if ($lease->hold === 'conn') {
                $this->unlockEnded($lease);
            }

            return;
        }
        if ($lease->detached || $lease->unwatched) {
            $this->resumed++;
            $this->connection->log('info', "lease \"$lease->name\" continues over the new connection");
        }
        $lease->detached = $lease->unwatched = false;
        $now = Wire::clock();
        $lease->extended($fields, $now, $this->ahead, $this->emptyAt);
        $this->arm($lease, $now);
        foreach ($this->flight as $call) {
            if ($call->lease === $lease && $call->isOfLease() && !$call->tags && $this->shouldSend($call)) {
                $this->send($call);
            }
        }
    }

    /**
     * Unlocks a lease that has ended here but that the daemon keeps: at the deadline that the holder knew,
     * because the holder may still be stopping, or at once if it has stopped.
     */
    private function unlockEnded(Lease $lease): void
    {
        $this->unlockAt($lease, $lease->unlocking || $lease->cause instanceof Released ? 0.0 : $lease->deadline + Wire::LEAD);
    }

    // --- the end

    /** Tells whether a LOCK was abandoned, or a release is in progress that nobody waits for. */
    public function isCleaning(): bool
    {
        foreach ($this->link ? $this->flight : [] as $call) {
            if ($call->state === 'abandoned' && ($call->request || $call->verb === 'UNLOCK')) {
                return true;
            }
        }

        return false;
    }

    /** Ends all leases and calls, and then the connection, at which the daemon releases the locks. */
    public function close(string $why = 'this client is closed'): void
    {
        if ($this->closed) {
            return;
        }
        $this->closed = true;
        foreach ($this->leases as $lease) {
            $this->finish($lease, new Lost($lease->what, "lost: $why"));
        }
        foreach ($this->flight as $call) {
            $this->fail($call, new Closed($call->what, $why));
        }
        $this->timers = [];
        $this->out = '';
    }
}
