/* Redlock as published (Redis, "Distributed locks"), for three nodes and two clients.
 *
 * It shows what redlockd adds: this model holds its properties while nothing fails but
 * clients, and loses one of them as soon as
 *   CRASHES=1  a node restarts without its data, and votes again       one holder
 *   JUMPS=1    the clock of a node jumps, so that its key expires      one holder
 *   PAUSES=1   a holder pauses between its check and its write         stale write
 * The page says what to do about the first (delay the restart for the ttl) and leaves
 * it to the operator; Kleppmann (2016) described the third. NO_RESTART=1 is the advice:
 * a node that crashed stays away, and the property holds.
 *
 * Time, bounds and simplifications are those of redlockd.pml. The clients write to a store
 * that has no means to compare them, as Redlock has no fencing token.
 */

#define N 3
#define D 2
#define QUORUM 2

#ifndef TTL
#define TTL 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef JUMPS
#define JUMPS 0
#endif
#ifndef PAUSES
#define PAUSES 0
#endif
#ifndef NO_RESTART
#define NO_RESTART 0
#endif

#define AT(d, n) ((d) * N + (n))

byte key[N];
byte ttl[N];
bool down[N];

#define IDLE 0
#define ACQUIRING 1
#define HELD 2
#define WRITING 3 /* the client has looked at its deadline, and writes next */

byte phase[D];
byte token[D];
byte elapsed[D];
byte votes[D];
byte deadline[D];

byte call[D * N];     /* an acquire under way: the token; 0: none */
byte released[D * N]; /* a release behind it */

byte attempts, crashes, jumps, pauses;
byte grants;   /* how many there were */
byte order[D]; /* the number of the client's grant */
byte written;  /* the grant of the last write to the store */
byte i;

inline send(d, t) {
	do
	:: i < N -> if :: !call[AT(d, i)] && !released[AT(d, i)] -> call[AT(d, i)] = t :: else fi; i++
	:: else -> break
	od;
	i = 0
}

inline release(d) {
	do
	:: i < N -> released[AT(d, i)] = token[d]; i++
	:: else -> break
	od;
	i = 0;
	phase[d] = IDLE; token[d] = 0; elapsed[d] = 0; votes[d] = 0; deadline[d] = 0; order[d] = 0
}

#define HOLDS(d) (phase[d] >= HELD && deadline[d] > 0)

proctype Client(byte d) {
end:	do
	:: d_step { phase[d] == IDLE && attempts < ATTEMPTS && !released[AT(d, 0)] && !released[AT(d, 1)] && !released[AT(d, 2)] ->
		attempts++;
		token[d] = attempts; phase[d] = ACQUIRING;
		send(d, token[d])
	}
	:: d_step { phase[d] == ACQUIRING && votes[d] >= QUORUM && elapsed[d] < TTL ->
		phase[d] = HELD;
		deadline[d] = TTL - elapsed[d];
		votes[d] = 0; elapsed[d] = 0;
		grants++;
		order[d] = grants;
		assert(!(HOLDS(0) && HOLDS(1))) /* one holder */
	}
	:: d_step { phase[d] == ACQUIRING -> release(d) }
	:: d_step { phase[d] == HELD -> release(d) }
	:: d_step { phase[d] == HELD && deadline[d] -> phase[d] = WRITING }
	:: d_step { phase[d] == WRITING && (deadline[d] || pauses < PAUSES) ->
		if :: deadline[d] == 0 -> pauses++ :: else fi;
		assert(order[d] >= written); /* stale write */
		written = order[d];
		phase[d] = HELD
	}
	:: d_step { phase[d] == WRITING && deadline[d] == 0 -> release(d) }
	od
}

proctype Lane(byte d; byte n; byte k) {
	bit answered;
end:	do
	:: atomic { call[k] && !down[n] ->
		if :: answered = 1 :: answered = 0 fi; /* or the answer is lost */
		d_step {
			if
			:: key[n] == 0 ->
				key[n] = call[k]; ttl[n] = TTL;
				if :: answered && phase[d] == ACQUIRING && token[d] == call[k] -> votes[d]++ :: else fi
			:: else
			fi;
			call[k] = 0; answered = 0
		}
	}
	:: d_step { released[k] && !call[k] && !down[n] ->
		if :: key[n] == released[k] -> key[n] = 0; ttl[n] = 0 :: else fi;
		released[k] = 0
	}
	od
}

#define TICK(x) x = (x > 0 -> x - 1 : 0)

proctype Environment() {
end:	do
	:: d_step { true ->
		do
		:: i < N -> TICK(ttl[i]); if :: ttl[i] == 0 -> key[i] = 0 :: else fi; i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < D -> TICK(deadline[i]); if :: phase[i] == ACQUIRING && elapsed[i] < TTL -> elapsed[i]++ :: else fi; i++
		:: else -> break
		od;
		i = 0
	}
	:: d_step { crashes < CRASHES -> crashes++; key[0] = 0; ttl[0] = 0; down[0] = NO_RESTART }
	:: d_step { jumps < JUMPS -> jumps++; key[0] = 0; ttl[0] = 0 }
	od
}

init {
	atomic {
		run Client(0); run Client(1);
		run Lane(0, 0, 0); run Lane(0, 1, 1); run Lane(0, 2, 2);
		run Lane(1, 0, 3); run Lane(1, 1, 4); run Lane(1, 2, 5);
		run Environment()
	}
}
