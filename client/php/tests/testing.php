<?php

// A few functions for tests, which need no framework.

declare(strict_types=1);

require getenv('REDLOCKD_AUTOLOAD') ?: __DIR__ . '/../src/autoload.php';

set_error_handler(static fn (int $level, string $text, string $file, int $line) => throw new ErrorException($text, 0, $level, $file, $line));

$failed = $passed = 0;

function test(string $what, callable $run): void
{
    global $failed, $passed, $argv;
    if (isset($argv[1])) { // a child of run
        return;
    }
    try {
        $run("php $what " . bin2hex(random_bytes(3)));
        $passed++;
    } catch (Throwable $error) {
        $failed++;
        echo "FAILED: $what: " . $error::class . ": {$error->getMessage()}\n{$error->getTraceAsString()}\n";
    }
}

// isFree tells whether another client gets the lock, after the release that may be in progress.
function isFree(string $name): bool
{
    $lease = (new Redlockd\Client(persistent: false))->tryLock($name, wait: 10);
    $lease?->release();

    return $lease !== null;
}

// finish prints the result. In a child of run it runs the code instead.
function finish(): void
{
    global $failed, $passed, $argv;
    if (isset($argv[1])) {
        eval(getenv('REDLOCKD_CHILD'));
        exit(0);
    }
    echo "$passed passed, $failed failed\n";
    exit($failed === 0 ? 0 : 1);
}

// run runs code in another process that has loaded a file.
function run(string $file, string $code, string ...$arguments): string
{
    $env = ['REDLOCKD_CHILD' => '$argv = ' . var_export(['', ...$arguments], true) . '; ' . $code] + getenv();
    $process = proc_open([PHP_BINARY, $file, 'child'], [1 => ['pipe', 'w'], 2 => STDERR], $pipes, null, $env);
    $output = stream_get_contents($pipes[1]);
    same(0, proc_close($process));

    return $output;
}

function same(mixed $want, mixed $got): void
{
    if ($want !== $got) {
        throw new Exception('got ' . var_export($got, true) . ', want ' . var_export($want, true));
    }
}

function contains(string $want, string $got): void
{
    if (!str_contains($got, $want)) {
        throw new Exception("got \"$got\", want \"$want\" in it");
    }
}

function atMost(float $most, float $got): void
{
    if ($got > $most) {
        throw new Exception("got $got, want $most at most");
    }
}

function throws(string $kind, string $hint, callable $run): Throwable
{
    try {
        $run();
    } catch (Throwable $error) {
        if (!$error instanceof $kind) {
            throw $error;
        }
        contains($hint, $error->getMessage());

        return $error;
    }
    throw new Exception("nothing was thrown, want $kind");
}
