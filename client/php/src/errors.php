<?php

declare(strict_types=1);

namespace Redlockd;

/** An error of redlockd. Its message says what happened, to which lock, and what to do. */
class RedlockdException extends \RuntimeException
{
    public const CODE = '';

    /** The code of the protocol. */
    public readonly string $errorCode;

    /**
     * @param array<string, string> $fields those of the answer
     */
    final public function __construct(string $what = '', public readonly string $text = '', public readonly array $fields = [], ?string $code = null)
    {
        parent::__construct($what === '' ? $text : "$what: $text");
        $this->errorCode = $code ?? static::CODE;
    }
}

/** Another client held the lock for all of wait. fields has host, pid and user if they are known. */
class Held extends RedlockdException
{
    public const CODE = 'HELD';
}

/** The process of hold: 'pid' already holds the lock or waits for it. */
class Already extends Held
{
    public const CODE = 'ALREADY';
}

/** Too few nodes could vote. This does not tell whether the lock is held. */
class NoQuorum extends RedlockdException
{
    public const CODE = 'NOQUORUM';
}

/** The lease ended without a release. From its deadline on, others can hold the lock. */
class Lost extends RedlockdException
{
    public const CODE = 'LOST';
}

/** The lease was already released. */
class NotHeld extends RedlockdException
{
    public const CODE = 'NOTHELD';
}

/** The cause of a lease that was released. */
class Released extends NotHeld
{
}

/** Waiting would have closed a cycle of waiters on this host. */
class Deadlock extends RedlockdException
{
    public const CODE = 'DEADLOCK';
}

/** The process that was to hold the lock (pid) ended during the wait. */
class Cancelled extends RedlockdException
{
    public const CODE = 'CANCELLED';
}

/** This user lacks the permission. */
class Denied extends RedlockdException
{
    public const CODE = 'DENIED';
}

/** A limit of the daemon's config is reached. */
class Limit extends RedlockdException
{
    public const CODE = 'LIMIT';
}

/** A name or an option is not valid. */
class Invalid extends RedlockdException
{
    public const CODE = 'OPTION';
}

/** There is no daemon, and none came while the call waited, or it hangs. */
class Unavailable extends RedlockdException
{
}

/** The daemon is stopping, and no other one has started. */
class Shutdown extends Unavailable
{
    public const CODE = 'SHUTDOWN';
}

/** The result of force is unknown: ask who before you repeat it. */
class Unknown extends RedlockdException
{
    public const CODE = 'UNKNOWN';
}

/** A defect of the daemon. See its log. */
class Internal extends RedlockdException
{
    public const CODE = 'INTERNAL';
}

/** close was called on this client. */
class Closed extends RedlockdException
{
}

/** @internal The other side does not speak the protocol. */
class ProtocolError extends \Exception
{
}
