<?php

// The program of README.md for the PHP client. PHP has no threads: a child reads the input, and sends
// SIGINT for a cancel, because the program may wait for the lock.

declare(strict_types=1);

require __DIR__ . '/../../client/php/src/autoload.php';

final class Cancel extends Exception
{
}

function say(string|int ...$words): void
{
    fwrite(STDOUT, implode(' ', $words) . "\n");
}

function code(Redlockd\RedlockdException $error): string
{
    return $error->errorCode ?: 'UNAVAILABLE';
}

/** @return array<string, mixed> the options of lock. Durations are in milliseconds. */
function options(array $words): array
{
    $options = [];
    foreach ($words as $word) {
        [$key, $value] = explode('=', $word);
        $options[$key] = in_array($key, ['wait', 'ttl', 'guard'], true) ? $value / 1000 : $value;
    }

    return $options;
}

[$commands, $input] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
$parent = getmypid();
if (pcntl_fork() === 0) {
    fclose($commands);
    while (($line = fgets(STDIN)) !== false) {
        str_starts_with($line, 'cancel ') ? posix_kill($parent, SIGINT) : fwrite($input, $line);
    }
    posix_kill(getmypid(), SIGKILL); // without destructors and buffers of the parent
}
fclose($input);
fclose(STDIN);
pcntl_async_signals(true);
pcntl_signal(SIGINT, static fn () => throw new Cancel());

$client = null;
$leases = $onLost = [];
$release = static function (string $key) use (&$leases): void {
    try {
        $leases[$key]->release();
        say('released', $key);
    } catch (Redlockd\RedlockdException $error) {
        say('refused', $key, code($error));
    }
};
$lost = static function (string $key, Redlockd\Lease $lease) use (&$onLost, $release): void {
    if (!str_contains($lease->cause->getMessage(), 'closed')) {
        say('lost', $key);
        if (isset($onLost[$key])) {
            $release($key);
        }
    }
};
$next = static function () use ($commands, &$client): string|false {
    while (true) {
        $read = [$commands];
        $write = $except = [];
        if (stream_select($read, $write, $except, 0, 1000) > 0) {
            return fgets($commands);
        }
        $client?->poll();
    }
};
while (($line = $next()) !== false) {
    $words = explode(' ', rtrim($line, "\n"));
    $verb = $words[0];
    $key = $words[1] ?? '';
    try {
        switch ($verb) {
            case 'begin':
                $client = new Redlockd\Client($key, persistent: false);
                $leases = $onLost = [];
                break;
            case 'end':
                $client->close();
                $client = null;
                say('ended');
                break;
            case 'lock':
                $names = array_map(rawurldecode(...), explode(',', $words[2]));
                $options = options(array_slice($words, 3));
                $leases[$key] = $client->lock($names, ...$options, onLost: static fn (Redlockd\Lease $lease) => $lost($key, $lease));
                say('granted', $key, "fence={$leases[$key]->fence}");
                break;
            case 'check':
                $leases[$key]->check();
                say('checked', $key);
                break;
            case 'remaining':
                say('remaining', $key, (int) round($leases[$key]->remaining() * 1000));
                break;
            case 'onlost':
                $onLost[$key] = true;
                break;
            case 'release':
                $release($key);
                break;
            case 'list':
                say('listed', count($client->list()));
                break;
        }
    } catch (Redlockd\RedlockdException $error) {
        say('refused', $key, code($error));
    } catch (Cancel) {
        say('cancelled', $key);
    }
}
