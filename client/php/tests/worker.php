<?php

// The program of a PHP worker in tests/workers.php: each request does what ?do= says, with a persistent connection.

declare(strict_types=1);

require getenv('REDLOCKD_AUTOLOAD') ?: __DIR__ . '/../src/autoload.php';

$name = $_GET['name'];
if ($_GET['do'] === 'die') { // neither the client's shutdown function nor its destructor runs
    ini_set('memory_limit', '64M');
    register_shutdown_function(static fn () => str_repeat('x', 1 << 30));
}
$client = new Redlockd\Client();
$client->list();
switch ($_GET['do']) {
    case 'use':
        $client->withLock($name, static fn () => null, wait: 5);
        break;
    case 'leave': // a lock is held at the end
        $GLOBALS['lease'] = $client->lock($name, wait: 5);
        break;
    case 'throw':
        $client->withLock($name, static fn () => throw new Exception('the request fails'), wait: 5);
        break;
    case 'die': // a request is sent whose answer comes later
        $connection = (fn () => $this->connection)->call($client);
        $connection->core->begin($connection->core->lock(new Redlockd\Request($name, [])));
        $connection->poll();
        break;
    case 'two': // a second client has a connection of its own
        $other = new Redlockd\Client();
        $lease = $client->lock($name, wait: 5);
        if ($other->tryLock($name) !== null) {
            throw new Exception('two have it');
        }
        $lease->release();
        break;
}
echo 'socket ', (fn () => fstat($this->stream)['ino'])->call((fn () => $this->connection)->call($client));
