<?php

declare(strict_types=1);

namespace Redlockd;

/** @internal A request and its answer. */
final class Call
{
    public string $state = 'new'; // queued, waiting, abandoned (nobody waits for it), done
    public string $owner = '';
    public readonly string $what; // for errors
    /** @var array<string, string> on this connection */
    public array $tags = [];
    public int $sentOn = 0; // the last connection; 0: never sent
    public bool $resent = false;
    public float $started;
    public ?float $until = null; // how long it waits for a connection; null: without a bound
    public int $fails = 0; // Core's fails when it began
    public int $limits = 0;
    public int $shutdowns = 0;
    /** @var list<array<string, string>> */
    public array $lines = [];
    /** @var ?array<string, string> the fields of OK */
    public ?array $reply = null;
    public string $replyText = '';
    public ?RedlockdException $error = null;
    public ?Lease $handle = null; // of LOCK: what the caller gets

    public function __construct(public readonly string $verb, public string $words = '', public ?Lease $lease = null, public readonly ?Request $request = null)
    {
        $name = $lease->name ?? ($request ? implode(',', $request->names) : null);
        $this->what = strtolower($verb) . ($name === null ? '' : " \"$name\"");
        $this->started = Wire::clock();
    }

    public function room(): string
    {
        return $this->verb === 'LOCK' || $this->verb === 'RESUME' ? $this->verb : 'other';
    }

    /** Tells whether it is never sent again: a second FORCE could revoke the lock of the next holder. */
    public function isOnce(): bool
    {
        return $this->verb === 'FORCE';
    }

    public function isOfLease(): bool
    {
        return $this->lease !== null && in_array($this->verb, ['CHECK', 'EXTEND', 'BEAT'], true);
    }
}
