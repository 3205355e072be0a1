<?php

// Tests of persistent connections: worker.php in a PHP server with one process, which keeps them between requests. With
// $REDLOCKD_FPM it is that php-fpm, else php -S. They need a real redlockd -dev, whose socket is $REDLOCK_SOCKET.

declare(strict_types=1);

require __DIR__ . '/testing.php';

use Redlockd\Client;

// serve starts the server, and returns a function that gets the body of a page.
function serve(mixed &$server): Closure
{
    $quiet = [1 => ['file', '/dev/null', 'w'], 2 => ['file', '/dev/null', 'w']];
    if (!$fpm = getenv('REDLOCKD_FPM')) {
        $address = '127.0.0.1:' . explode(':', stream_socket_get_name($free = stream_socket_server('tcp://127.0.0.1:0'), false))[1];
        fclose($free);
        $server = proc_open([PHP_BINARY, '-d', 'display_errors=stderr', '-S', $address, __DIR__ . '/worker.php'], $quiet, $pipes);
        $context = stream_context_create(['http' => ['ignore_errors' => true]]);

        return static fn (string $query): string => file_get_contents("http://$address/?$query", false, $context);
    }
    mkdir($dir = sys_get_temp_dir() . '/redlockd-fpm-' . bin2hex(random_bytes(6)), 0o700);
    register_shutdown_function(static fn () => array_map(unlink(...), glob("$dir/*")) && rmdir($dir));
    $user = posix_geteuid() === 0 ? "user = root\ngroup = root\n" : '';
    file_put_contents("$dir/fpm.conf", "[global]\nerror_log = $dir/log\n[www]\n{$user}listen = $dir/socket\npm = static\npm.max_children = 1\nclear_env = no\n");
    $server = proc_open([$fpm, '--nodaemonize', '--allow-to-run-as-root', '--fpm-config', "$dir/fpm.conf"], $quiet, $pipes);

    return static fn (string $query): string => fastCGI("$dir/socket", ['SCRIPT_FILENAME' => __DIR__ . '/worker.php', 'REQUEST_METHOD' => 'GET', 'QUERY_STRING' => $query]);
}

// fastCGI makes a request, and returns the body of the answer.
function fastCGI(string $socket, array $parameters): string
{
    $record = static fn (int $type, string $content): string => pack('CCnnCx', 1, $type, 1, strlen($content), 0) . $content;
    $length = static fn (string $text): string => pack('N', strlen($text) | 1 << 31);
    $pairs = '';
    foreach ($parameters as $name => $value) {
        $pairs .= $length($name) . $length($value) . $name . $value;
    }
    $stream = stream_socket_client("unix://$socket");
    fwrite($stream, $record(1, pack('nCx5', 1, 0)) . $record(4, $pairs) . $record(4, '') . $record(5, ''));
    for ($output = ''; strlen($header = stream_get_contents($stream, 8)) === 8;) {
        ['type' => $type, 'length' => $size, 'padding' => $padding] = unpack('Cversion/Ctype/nid/nlength/Cpadding', $header);
        $content = $size + $padding > 0 ? stream_get_contents($stream, $size + $padding) : '';
        $output .= $type === 6 ? substr($content, 0, $size) : ''; // FCGI_STDOUT
    }

    return explode("\r\n\r\n", $output, 2)[1] ?? throw new Exception("php-fpm answers $output");
}

test('the next request of a worker', function (string $name) {
    $fetch = serve($server);
    $get = static fn (string $do, string $of = ''): string => $fetch(http_build_query(['do' => $do, 'name' => $name . $of]));
    try {
        for ($tries = 0; ; $tries++) {
            try {
                $get('use');
                break;
            } catch (ErrorException $error) { // it does not listen yet
                $tries < 3000 ? usleep(10_000) : throw $error;
            }
        }
        $socket = $get('use');
        contains('socket ', $socket);
        same($socket, $get('use'));
        same($socket, $get('two'));
        $get('throw');
        same(true, isFree($name));
        same($socket, $get('use')); // withLock has released it
        $get('leave');
        same(true, isFree($name)); // at once, and without a next request
        same(false, $socket === ($next = $get('use')));

        // A request dies while its LOCK waits. Its grant would come to the next request, and stay.
        $c = new Client(persistent: false);
        $held = $c->lock("$name d");
        $get('die', ' d');
        $waits = static fn (): bool => [] !== array_filter($c->list(), static fn ($line) => $line['lock'] === "$name d" && $line['state'] === 'waiting');
        for ($tries = 0; !$waits(); $tries++) { // the daemon may not have refused it yet
            $tries < 3000 ? usleep(10_000) : throw new Exception('its LOCK does not wait');
        }
        same(false, $next === $get('use'));
        $held->release();
        same(true, isFree("$name d"));
    } finally {
        proc_terminate($server);
        proc_close($server);
    }
});

finish();
