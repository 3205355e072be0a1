<?php

declare(strict_types=1);

namespace Redlockd;

/** An error of redlockd. Its message says what happened, to which lock, and what to do. */
class RedlockdException extends \RuntimeException
{
    /** The classes of the protocol's codes. The first code of a class is that of errors of this client. */
    private const CLASSES = [
        'HELD' => Held::class, 'ALREADY' => Already::class, 'NOQUORUM' => NoQuorum::class, 'LOST' => Lost::class, 'NOTHELD' => NotHeld::class,
        'DEADLOCK' => Deadlock::class, 'CANCELLED' => Cancelled::class, 'DENIED' => Denied::class, 'LIMIT' => Limit::class, 'SHUTDOWN' => Shutdown::class,
        'UNKNOWN' => Unknown::class, 'INTERNAL' => Internal::class,
        'OPTION' => Invalid::class, 'SYNTAX' => Invalid::class, 'VERB' => Invalid::class, 'NAME' => Invalid::class, 'TOOLONG' => Invalid::class,
    ];

    /** The code of the protocol, or ''. */
    public readonly string $errorCode;

    /**
     * @param array<string, string> $fields those of the answer
     */
    final public function __construct(string $what = '', public readonly string $text = '', public readonly array $fields = [], ?string $code = null)
    {
        parent::__construct($what === '' ? $text : "$what: $text");
        $this->errorCode = $code ?? (array_search(static::class, self::CLASSES, true) ?: array_search(get_parent_class($this), self::CLASSES, true) ?: '');
    }

    /** @internal Returns the class for a code of the protocol. */
    public static function classOf(string $code): string
    {
        return self::CLASSES[$code] ?? self::class;
    }
}

/** Another client held the lock for all of wait. fields has host, pid and user if they are known. */
class Held extends RedlockdException {}

/** The process of hold: 'pid' already holds the lock or waits for it. */
class Already extends Held {}

/** Too few nodes could vote. This does not tell whether the lock is held. */
class NoQuorum extends RedlockdException {}

/** The lease ended without a release. From its deadline on, others can hold the lock. */
class Lost extends RedlockdException {}

/** The lease was already released. */
class NotHeld extends RedlockdException {}

/** The cause of a lease that was released. */
class Released extends NotHeld {}

/** Waiting would have closed a cycle of waiters on this host. */
class Deadlock extends RedlockdException {}

/** The process that was to hold the lock (pid) ended during the wait. */
class Cancelled extends RedlockdException {}

/** This user lacks the permission. */
class Denied extends RedlockdException {}

/** A limit of the daemon's config is reached. */
class Limit extends RedlockdException {}

/** A name or an option is not valid. */
class Invalid extends RedlockdException {}

/** There is no daemon, and none came while the call waited, or it hangs. */
class Unavailable extends RedlockdException {}

/** The daemon is stopping, and no other one has started. */
class Shutdown extends Unavailable {}

/** The result of force is unknown: ask who before you repeat it. */
class Unknown extends RedlockdException {}

/** A defect of the daemon. See its log. */
class Internal extends RedlockdException {}

/** close was called on this client. */
class Closed extends RedlockdException {}

/** @internal The other side does not speak the protocol. */
class ProtocolError extends \Exception {}
