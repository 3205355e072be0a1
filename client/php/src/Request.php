<?php

declare(strict_types=1);

namespace Redlockd;

/** @internal The names and options of LOCK. */
final class Request
{
    private const DURATIONS = ['ttl', 'max', 'min', 'guard', 'linger', 'beat'];
    public const OPTIONS = ['wait', 'mode', 'slots', 'hold', 'pid', 'note', 'releaseWait', 'onLost', ...self::DURATIONS];

    /** Options that programs know from other libraries, and ours. */
    private const OTHERS = [
        'timeout' => 'ttl: is the lease time, wait: how long to wait, max: the longest time to hold it',
        'blocking' => 'wait: 0 does not wait',
        'seconds' => 'ttl: is the lease time, max: the longest time to hold it',
        'expire' => 'ttl: is the lease time; redlockd extends the lease',
        'autoRelease' => 'the lock is held until release(), or the end of the request',
        'retryCount' => 'wait: is how long to wait; a waiter is notified',
        'retryDelay' => 'wait: is how long to wait; a waiter is notified',
    ];

    /** @var list<string> */
    public readonly array $names;
    public readonly string $words;
    public readonly string $options;
    public readonly ?float $wait;
    public readonly string $hold;
    public readonly float $guard;
    public readonly float $ttl;
    public readonly float $max;
    public readonly ?float $releaseWait;
    public readonly ?\Closure $onLost;
    /** Whether a grant stays when the connection ends. */
    public readonly bool $outlasts;

    /**
     * @param string|array<mixed>      $names
     * @param array<int|string, mixed> $given
     */
    public function __construct(string|array $names, array $given)
    {
        foreach (array_diff(array_keys($given), self::OPTIONS) as $unknown) {
            $known = 'there are ' . implode(' ', array_map(static fn ($option) => "$option:", self::OPTIONS));
            throw new \InvalidArgumentException(is_int($unknown) ? "lock takes options by name only: $known" : "lock has no option $unknown: " . (self::OTHERS[$unknown] ?? $known));
        }
        $given = array_filter($given, static fn ($value) => $value !== null);
        $this->names = array_values((array) $names);
        $this->words = Wire::names($this->names);
        $this->wait = isset($given['wait']) ? Wire::milliseconds('wait', $given['wait']) / 1000 : null;
        $this->releaseWait = isset($given['releaseWait']) ? Wire::milliseconds('releaseWait', $given['releaseWait']) / 1000 : null;
        $this->hold = self::choice('hold', $given['hold'] ?? 'conn', ['conn', 'ttl', 'pid']);
        if (isset($given['onLost']) && !is_callable($given['onLost'])) {
            throw new \TypeError('onLost: pass a callable');
        }
        $this->onLost = isset($given['onLost']) ? $given['onLost'](...) : null;

        $words = [];
        if (self::choice('mode', $given['mode'] ?? 'exclusive', ['exclusive', 'shared']) === 'shared') {
            $words[] = 'mode=shared';
        }
        if ($this->hold !== 'conn') {
            $words[] = "hold=$this->hold";
        }
        if (isset($given['slots'])) {
            $words[] = self::whole('slots', $given['slots'], 1000);
        }
        if (isset($given['pid'])) {
            if ($this->hold !== 'pid') {
                throw new Invalid('', "pid: it needs hold: 'pid'");
            }
            $words[] = self::whole('pid', $given['pid'], 1 << 31);
        }
        $ms = [];
        foreach (self::DURATIONS as $option) {
            if (isset($given[$option])) {
                $ms[$option] = Wire::milliseconds($option, $given[$option]);
                $words[] = "$option=$ms[$option]";
            }
        }
        if (isset($given['note'])) {
            if (strlen(Wire::utf8('note', $given['note'])) > 200) {
                throw new Invalid('', 'the note has ' . strlen($given['note']) . ' bytes: at most 200');
            }
            $words[] = 'note=' . Wire::escape($given['note']);
        }
        $this->guard = ($ms['guard'] ?? 0) / 1000;
        $this->ttl = ($ms['ttl'] ?? 0) / 1000;
        $this->max = ($ms['max'] ?? 0) / 1000;
        $this->outlasts = $this->hold !== 'conn' || ($ms['linger'] ?? 0) > 0;
        $this->options = implode('', array_map(static fn ($word) => " $word", $words));
    }

    /** @param list<string> $choices */
    private static function choice(string $option, mixed $value, array $choices): string
    {
        if (!in_array($value, $choices, true)) {
            throw new Invalid('', "$option: " . json_encode($value, JSON_PARTIAL_OUTPUT_ON_ERROR) . ": pass one of '" . implode("', '", $choices) . "'");
        }

        return $value;
    }

    private static function whole(string $option, mixed $value, int $most): string
    {
        if (!is_int($value)) {
            throw new \TypeError("$option: " . get_debug_type($value) . ': pass a whole number');
        }
        if ($value < 1 || $value > $most) {
            throw new Invalid('', "$option: $value: pass 1 to $most");
        }

        return "$option=$value";
    }
}
