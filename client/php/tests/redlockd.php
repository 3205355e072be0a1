<?php

// Tests with a real redlockd -dev, whose socket is $REDLOCK_SOCKET.

declare(strict_types=1);

require __DIR__ . '/testing.php';

use Redlockd\Client;
use Redlockd\Lease;

function client(?string $path = null, float $patience = 5.0): Client
{
    return new Client($path, $patience, persistent: false);
}

// isHeld tells whether another client does not get it.
function isHeld(string $name): bool
{
    $c = client();
    $lease = $c->tryLock($name);
    $lease?->release();

    return $lease === null;
}

// forked runs a function in a child, and checks that it returns true.
function forked(callable $run): void
{
    $pid = pcntl_fork();
    if ($pid === 0) {
        $status = 1;
        try {
            $status = $run() === true ? 0 : 2;
        } catch (Throwable $error) {
            fwrite(STDERR, "$error\n");
        }
        fflush(STDERR);
        pcntl_exec('/bin/sh', ['-c', "exit $status"]); // without destructors of the parent's
    }
    pcntl_waitpid($pid, $status);
    same(0, $status);
}

// folder makes a temporary folder, and removes it.
function folder(callable $use): void
{
    $path = sys_get_temp_dir() . '/rl' . bin2hex(random_bytes(4));
    mkdir($path, 0755);
    try {
        $use($path);
    } finally {
        array_map('unlink', glob("$path/*"));
        rmdir($path);
    }
}

test('withLock', function (string $name) {
    $c = client();
    $kept = null;
    same('result', $c->withLock($name, function (Lease $lease) use ($c, $name, &$kept) {
        $kept = $lease;
        same(true, $lease->fence > 0 && $lease->remaining() > 1);
        same([$name], $lease->names);
        $lease->check();
        $held = throws(Redlockd\Held::class, 'held by', static fn () => $c->lock($name, wait: 0));
        same((string) getmypid(), $held->fields['pid']);
        same('HELD', $held->errorCode);
        same(false, str_contains(print_r($lease, true), $lease->id));

        return 'result';
    }, wait: 5));
    same(true, isFree($name));
    same(0.0, $kept->remaining());
    throws(Redlockd\NotHeld::class, '', $kept->release(...));
    same('NOTHELD', throws(Redlockd\NotHeld::class, '', $kept->check(...))->errorCode);
    throws(DivisionByZeroError::class, '', static fn () => $c->withLock($name, static fn () => intdiv(1, 0)));
    same(true, isFree($name));
    $c->withLock($name, static fn (Lease $lease) => $lease->release());
});

test('options', function (string $name) {
    $c = client();
    $c->withLock([$name, 'other'], function (Lease $lease) use ($c, $name) {
        same("$name,other", $lease->name);
        atMost(3, $lease->remaining());
        same(true, in_array('a b', array_column($c->list(), 'note'), true));
    }, ttl: 3, note: 'a b', guard: 0.5, max: 60, linger: 0);
    $c->withLock($name, static fn () => $c->withLock($name, static fn () => null, mode: 'shared', wait: 0), mode: 'shared');
    $slots = [$c->lock("$name s", slots: 2)->slot, $c->lock("$name s", slots: 2)->slot];
    sort($slots);
    same([1, 2], $slots);
    same(null, $c->tryLock("$name s", slots: 2));
    $c->withLock("$name p", static fn () => throws(Redlockd\Already::class, '', static fn () => $c->lock("$name p", hold: 'pid', wait: 0)), hold: 'pid');
    $c->withLock($name, function (Lease $lease) use ($c, $name) {
        $lease->beat();
        $lease->downgrade();
        $c->lock($name, mode: 'shared', wait: 0)->release();
    }, beat: 30);
    $c->lock("$name m", min: 30)->release();
    same(true, isHeld("$name m"));
    same(true, $c->isLocked("$name m"));
    [$status, $nodes] = $c->status();
    same(['3', 5], [$status['quorum'], count($nodes)]);
    contains('locks work', $status['text']);
});

test('a lease of hold ttl is extended, and passed on', function (string $name) {
    $lease = client()->lock($name, hold: 'ttl', ttl: 20);
    $lease->extend(25);
    same(true, $lease->remaining() > 21);
    $token = $lease->handOver();
    unset($lease);
    same(true, isHeld($name));
    run(__FILE__, 'client()->takeOver($argv[1])->check();', $token);
    same(true, isHeld($name)); // also after the end of that process
    $lease = client()->takeOver($token);
    $lease->extend();
    $lease->release();
    same(true, isFree($name));
    throws(Redlockd\Lost::class, 'no longer knows', static fn () => client()->takeOver($token));
    throws(Redlockd\Invalid::class, 'no token', static fn () => client()->takeOver('["a"]'));
    throws(Redlockd\Invalid::class, 'no token', static fn () => client()->takeOver('[["a"],"x\nFORCE a","",1,0]'));
    throws(LogicException::class, "hold: 'ttl'", static fn () => client()->lock($name)->handOver());
});

test('losses', function (string $name) {
    $c = client();
    $told = [];
    $error = throws(Redlockd\Lost::class, 'holding time', static fn () => $c->withLock($name, function (Lease $lease) use ($c, &$told) {
        $c->poll(0.5);
        same([$lease], $told);
        same(true, $lease->isLost());
        $lease->check();
    }, max: 0.3, onLost: function (Lease $lease) use (&$told) {
        $told[] = $lease;
    }));
    throws(DivisionByZeroError::class, '', static fn () => $c->withLock($name, function () {
        usleep(400_000);
        intdiv(1, 0);
    }, max: 0.3));
    $lease = $c->lock($name);
    client()->force($name);
    same('forced', throws(Redlockd\Lost::class, '', $lease->check(...))->fields['reason']);
    $lease = $c->lock($name, ttl: 3);
    usleep(3_200_000); // busy: the daemon has extended it all the time
    $lease->check();
    $lease->release();
    $lease = $c->lock($name);
    $c->close();
    throws(Redlockd\Lost::class, 'closed', $lease->check(...));
    throws(Redlockd\Closed::class, '', static fn () => $c->lock($name));
    same(true, isFree($name));
});

test('names and options that are wrong', function () {
    $c = client();
    foreach ([
        [TypeError::class, 'pass a string', [[5]], []],
        [Redlockd\Invalid::class, 'not UTF-8', ["\xff"], []],
        [Redlockd\Invalid::class, '1 to 200', [''], []],
        [Redlockd\Invalid::class, '1 to 200', [str_repeat('é', 101)], []],
        [Redlockd\Invalid::class, '1 to 100', [[]], []],
        [Redlockd\Invalid::class, '3000', [array_map(static fn ($i) => str_repeat('%', 199) . $i, range(1, 9))], []],
        [TypeError::class, 'wait: 5 or wait: 0.25', ['a'], ['wait' => '5s']],
        [TypeError::class, 'seconds', ['a'], ['wait' => true]],
        [Redlockd\Invalid::class, 'null waits without a bound', ['a'], ['wait' => -1]],
        [Redlockd\Invalid::class, 'seconds', ['a'], ['wait' => NAN]],
        [Redlockd\Invalid::class, "daemon's default", ['a'], ['ttl' => INF]],
        [Redlockd\Invalid::class, "'exclusive', 'shared'", ['a'], ['mode' => 'read']],
        [Redlockd\Invalid::class, "'conn', 'ttl', 'pid'", ['a'], ['hold' => ['x']]],
        [Redlockd\Invalid::class, "hold: 'pid'", ['a'], ['pid' => 5]],
        [TypeError::class, 'whole number', ['a'], ['slots' => 1.5]],
        [Redlockd\Invalid::class, '1 to 1000', ['a'], ['slots' => 0]],
        [Redlockd\Invalid::class, 'at most 200', ['a'], ['note' => str_repeat('x', 201)]],
        [TypeError::class, 'a callable', ['a'], ['onLost' => 5]],
        [InvalidArgumentException::class, 'no option retain: there are wait: ', ['a'], ['retain' => 1]],
        [InvalidArgumentException::class, 'ttl: is the lease time', ['a'], ['timeout' => 1]],
        [InvalidArgumentException::class, 'by name only', ['a', 5], []],
        [Redlockd\Invalid::class, '', ["a\nb"], []], // by the daemon, as the rest
        [Redlockd\Invalid::class, '', ['redlockd:x'], []],
        [Redlockd\Invalid::class, '', ['a'], ['ttl' => 0.01]],
        [Redlockd\Invalid::class, '', ['a'], ['min' => 1, 'hold' => 'ttl']],
    ] as [$kind, $hint, $arguments, $options]) {
        throws($kind, $hint, static fn () => $c->lock(...$arguments, ...$options));
    }
    throws(Redlockd\Invalid::class, 'a URL', static fn () => client('redis://localhost:6379'));
    throws(TypeError::class, '', static fn () => client(5));
    throws(LogicException::class, 'make one in each process', static fn () => serialize(client()));
});

test('sockets that are none', function () {
    folder(function (string $path) {
        touch("$path/text");
        $datagram = stream_socket_server("udg://$path/datagram", $errno, $why, STREAM_SERVER_BIND);
        foreach ([
            ["$path/text", Redlockd\Invalid::class, 'not a socket: set the path or REDLOCK_SOCKET'],
            [$path, Redlockd\Invalid::class, 'not a socket'],
            ["$path/datagram", Redlockd\Invalid::class, 'not a stream socket'],
            [str_repeat('x', 200), Redlockd\Invalid::class, 'at most 107'],
            ["$path/none", Redlockd\Unavailable::class, 'is redlockd running'],
        ] as [$socket, $kind, $hint]) {
            throws($kind, $hint, static fn () => client($socket)->lock('job', wait: 0.05));
        }
        if (posix_getuid() === 0) {
            $server = stream_socket_server("unix://$path/s");
            chmod("$path/s", 0600);
            forked(function () use ($path) {
                posix_setuid(65534);
                throws(Redlockd\Denied::class, 'group of the socket', static fn () => client("$path/s")->lock('job'));

                return true;
            });
        }
    });
});

test('an old daemon, and a server of another protocol', function () {
    foreach (['@%s ERR VERB : no such request' => 'VERB: no such request', 'HTTP/1.1 400 Bad Request' => 'does not speak the protocol'] as $answer => $hint) {
        folder(function (string $path) use ($answer, $hint) {
            $server = stream_socket_server("unix://$path/s");
            $pid = pcntl_fork();
            if ($pid === 0) {
                $connection = stream_socket_accept($server);
                fwrite($connection, sprintf($answer, substr(explode(' ', fgets($connection))[0], 1)) . "\n");
                fgets($connection); // until its end
                pcntl_exec('/bin/true');
            }
            throws(Redlockd\RedlockdException::class, $hint, static fn () => client("$path/s")->lock('job', wait: 5));
            pcntl_waitpid($pid, $status);
        });
    }
});

test('only a space separates words', function (string $name) {
    $c = client();
    throws(Redlockd\Invalid::class, '', static fn () => $c->lock("a\u{85}b")); // a control character
    $name = "$name prix\u{a0}net\u{1680}a\u{2028}b\u{3000}";
    $c->withLock($name, function (Lease $lease) use ($c, $name) {
        same($name, $c->who($name)[0]['lock']);
        same("\u{a0}note\u{2029}\u{85}\u{3000}x", array_column($c->list(), 'note', 'lock')[$name]);
        contains($name, throws(Redlockd\Held::class, '', static fn () => $c->lock($name, wait: 0))->getMessage());
        $lease->check();
    }, note: "\u{a0}note\u{2029}\u{85}\u{3000}x");
});

test('a daemon that hangs', function (string $name) {
    folder(function (string $path) {
        $server = stream_socket_server("unix://$path/s");
        $log = [];
        $c = new Client("$path/s", 0.2, false);
        throws(Redlockd\Unavailable::class, 'hangs', static fn () => $c->lock('job', wait: 0.1));
        throws(Redlockd\Unavailable::class, 'hangs', static fn () => $c->list());
    });
});

test('a child has no part in the lease', function (string $name) {
    $c = client();
    $lease = $c->lock($name);
    forked(function () use ($c, $lease, $name) {
        throws(Redlockd\Lost::class, 'forked', $lease->check(...));
        $lease->release(); // does nothing
        same(null, $c->tryLock($name)); // the same client, over a connection of its own
        $c->lock("$name of the child", wait: 5)->release();
        $c->close();

        return true;
    });
    $lease->check();
    same(true, isHeld($name));
});

test('a signal handler that throws ends a wait', function (string $name) {
    $c = client();
    $held = client()->lock($name);
    pcntl_async_signals(true);
    pcntl_signal(SIGALRM, static fn () => throw new RuntimeException('alarm'));
    try {
        foreach (range(1, 3) as $_) {
            pcntl_alarm(1);
            throws(RuntimeException::class, 'alarm', static fn () => $c->lock($name));
        }
        $held->release();
        same('0', $c->status()[0]['waiters']);
        same(true, isFree($name));
    } finally {
        pcntl_async_signals(false);
    }
});

test('signals at any time', function (string $name) {
    $c = client();
    $other = $c->lock("$name other");
    $raised = 0;
    $isArmed = false;
    pcntl_async_signals(true);
    pcntl_signal(SIGUSR1, function () use (&$isArmed, &$raised) {
        if ($isArmed) {
            $isArmed = false;
            $raised++;
            throw new RuntimeException('signal');
        }
    });
    $parent = getmypid();
    $pid = pcntl_fork();
    if ($pid === 0) {
        pcntl_async_signals(false);
        for ($i = 0; $i < 300; $i++) {
            usleep(random_int(500, 3000));
            posix_kill($parent, SIGUSR1);
        }
        pcntl_exec('/bin/true');
    }
    while (pcntl_waitpid($pid, $status, WNOHANG) === 0) {
        $isArmed = true;
        try {
            $c->withLock($name, static fn () => usleep(100), wait: 10);
        } catch (RuntimeException) {
        }
        $isArmed = false;
    }
    pcntl_async_signals(false);
    same(true, $raised > 0);
    $other->check(); // the connection is the same
    same(0, $c->resumed());
    same(true, isFree($name));
});

finish();
