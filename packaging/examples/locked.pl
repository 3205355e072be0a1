#!/usr/bin/perl
# locked.pl NAME STEPS [OPTION=VALUE ...]: works under a lock of redlockd.
#
# It needs only Perl's core modules. Exit status: 0 done, 1 held by another process,
# 64 usage, 69 no redlockd or no quorum, 70 another refusal, 75 the lock was lost,
# 77 not allowed.
use strict;
use warnings;
use IO::Handle;
use IO::Select;
use IO::Socket::UNIX;

my $socket = $ENV{REDLOCK_SOCKET} || '/run/redlockd/redlockd.sock';
my %status = (HELD => 1, NOQUORUM => 69, SHUTDOWN => 69, DENIED => 77, LIMIT => 77, LOST => 75);
my $gone   = 'redlockd is gone, and nobody keeps the lock';

my ($name, $steps, @options) = @ARGV;
if (!defined $steps || $steps !~ /^\d+$/) {
    print STDERR "usage: $0 NAME STEPS [OPTION=VALUE ...]\n";
    exit 64;
}
$SIG{PIPE} = 'IGNORE';    # a read notices the end of redlockd
STDOUT->autoflush;

my $conn = IO::Socket::UNIX->new(Peer => $socket) or fail(69, "$socket: $!");
my $received = '';        # received, but not parsed yet
(my $quoted = $name) =~ s{([^\w/.-])}{sprintf '%%%02X', ord $1}aeg;

# The lock is held as long as this connection: it is released however the program ends.
my ($fence) = ask('LOCK', $quoted, @options) =~ / fence=(\d+)/;
work();
ask('UNLOCK', $quoted);
print "done\n";

# work is what the lock protects, in steps. Its storage should refuse a fencing token
# that is smaller than the largest it has seen.
sub work {
    print "holding $name, fencing token $fence\n";
    for my $step (1 .. $steps) {
        pause(0.1);
        print "step $step\n";
    }
}

# pause waits, and stops the program if the lock is lost meanwhile.
sub pause {
    my ($seconds) = @_;
    for (my $line = line($seconds); !defined $line || $line ne ''; $line = line(0)) {
        event($line);
    }
}

# line returns the next line; '' if none comes within so many seconds, undef at the end.
# (With getline, select would not see the second of two lines that arrive together.)
sub line {
    my ($seconds) = @_;
    while (1) {
        return $1 if $received =~ s/^(.*\n)//;
        IO::Select->new($conn)->can_read($seconds) or return '';
        sysread($conn, $received, 4096, length $received) or return undef;
    }
}

# ask sends a request and returns its OK, or stops the program.
sub ask {
    print $conn "@_\n";
    $conn->flush;
    while (defined(my $line = line())) {
        return $line if $line =~ /^OK\b/;
        fail($status{$1} // 70, $line) if $line =~ /^ERR (\w+)/;
        event($line);
    }
    fail(69, 'redlockd does not answer');
}

# event handles a line between answers: LOST; BACK, after a restart of redlockd that kept
# the lock; or BYE, before redlockd stops.
sub event {
    my ($line) = @_;
    fail(75, 'stopped: ' . ($line // $gone)) if !defined $line || $line =~ /^LOST\b/;
}

sub fail {
    my ($status, $why) = @_;
    chomp $why;
    print STDERR "$0: $why\n";
    exit $status;
}
