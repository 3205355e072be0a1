/* back: the set of nodes changes from one list to another and back, and a node comes back with old state.
 *
 * The list A has all three nodes, the list B only node C. A change leads from A to B, and another one
 * back to A. A node stores the names of the lists, and not how many changes there were. So its text does not
 * tell whether it is from before the first change or from after the second: a node that left, or that
 * missed a step, may come back with it at any time. See nodes.pml for one change, and for what a node serves.
 *
 * A host has one config after the other: A, A to B, B, B to A, A. It may be late by any time, or too
 * early.
 *
 *   spin -a back.pml && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan
 *
 * Bounds, each a -D flag:
 *
 *   CRASHES   how often nodes of A that are not in B lose their data. (An operator removes the state of
 *             a node that left before it joins again: then it has lost its data.)
 *   GRANTS    count fencing tokens, for this many grants; 0: any number of grants, and no tokens
 *
 * Planted mistakes:
 *
 *   ONE_WITNESS    one node that serves the new list shows that a change is done
 *   ONE_DONE       a node that lost its data serves the new list as soon as one other node does
 *
 * What is simpler than in redlockd: a ballot is one step. A host looks at all nodes at one instant. Every lease
 * and every wait ends with the next tick.
 */

#define D 2
#define NODES 3
#define C 2 /* the node of list B */

#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef GRANTS
#define GRANTS 0
#endif

/* what a node has stored */
#define LOST 0
#define A 1 /* list A, and no change */
#define AB_BEGUN 2
#define AB_COMMITTED 3
#define AB_DONE 4
#define BA_BEGUN 5
#define BA_COMMITTED 6
#define BA_DONE 7
#define B 8
#define SERVES_A(n) (stored[n] == A || stored[n] == AB_BEGUN || stored[n] == BA_DONE)
#define SERVES_B(n) (stored[n] == B || stored[n] == AB_DONE || stored[n] == BA_BEGUN)
#define IS_AB(n) (stored[n] >= AB_BEGUN && stored[n] <= AB_DONE)
#define IS_BA(n) (stored[n] >= BA_BEGUN && stored[n] <= BA_DONE)
#define REFUSES_A(n) (stored[n] == AB_COMMITTED || stored[n] == AB_DONE)
#define REFUSES_B(n) (stored[n] == BA_COMMITTED || stored[n] == BA_DONE)

/* configs, in this order */
#define HAS_A 0
#define HAS_AB 1
#define HAS_B 2
#define HAS_BA 3
#define HAS_A_AGAIN 4
#define IS_A(d) (config[d] == HAS_A || config[d] == HAS_A_AGAIN)

/* A joint host counts a node of one list as hosts with that list do. */
#define SERVES(n, d) (IS_A(d) && SERVES_A(n) || \
	config[d] == HAS_AB && (IS_AB(n) || SERVES_A(n) || n == C && SERVES_B(n)) || \
	config[d] == HAS_B && n == C && SERVES_B(n) || \
	config[d] == HAS_BA && (IS_BA(n) || SERVES_A(n) || n == C && SERVES_B(n)))

byte stored[NODES];
byte key[NODES];        /* the host that has the lock, plus 1 */
bit waited[NODES];      /* a tick has passed since it began to refuse a list, or since it lost its data */
byte counter[NODES];
byte config[D];
bit deadline[D];        /* in ticks: it holds the lock until the next one */
byte crashes, grants, largest, fence;
byte i;

#define OTHER(n, k) ((n + k) % NODES)
#define BOTH_OTHERS_SERVE_A(n) (SERVES_A(OTHER(n, 1)) && SERVES_A(OTHER(n, 2)))
#define ONE_OTHER_SERVES_A(n) (SERVES_A(OTHER(n, 1)) || SERVES_A(OTHER(n, 2)))

inline store(n, what) { stored[n] = what; waited[n] = 0 }

/* copy raises the counter of node n to that of another node. */
inline copy(n, from) {
#if GRANTS
	if :: counter[from] > counter[n] -> counter[n] = counter[from] :: else fi
#else
	skip
#endif
}

#define GIVES(n, d) (SERVES(n, d) && key[n] == 0)

/* take lets host d take the lock with the votes of nodes a and b, which may be the same. */
inline take(d, a, b) {
	key[a] = d + 1; key[b] = d + 1; deadline[d] = 1;
	assert(!(deadline[0] > 0 && deadline[1] > 0)); /* one holder */
#if GRANTS
	grants++;
	fence = (counter[a] > counter[b] -> counter[a] : counter[b]) + 1;
	counter[a] = fence; counter[b] = fence;
	assert(fence > largest); /* token order */
	largest = fence;
	fence = 0
#endif
}

/* Pair is what host d does with nodes a and b: two nodes are a majority of A. A quorum of joint hosts has node C, too, or is
   one of hosts with the old list. */
proctype Pair(byte d; byte a; byte b) {
end:	do
	:: d_step { !deadline[d] && (GRANTS == 0 || grants < GRANTS) && GIVES(a, d) && GIVES(b, d) && (IS_A(d) ||
			(config[d] == HAS_AB || config[d] == HAS_BA) && b == C ||
			config[d] == HAS_AB && SERVES_A(a) && SERVES_A(b)) -> take(d, a, b) }
	/* A majority of A lost its data at one instant. A host with that list believes all nodes to be new, if it cannot reach the third one. */
	:: d_step { IS_A(d) && stored[a] == LOST && waited[a] && stored[b] == LOST && waited[b] -> store(a, A); store(b, A) }
	/* The first change is done on C: a majority refused the old list at one instant, and still does after the wait. */
	:: d_step { config[d] == HAS_AB && (stored[C] == AB_BEGUN || stored[C] == AB_COMMITTED) &&
			REFUSES_A(a) && waited[a] && REFUSES_A(b) && waited[b] ->
		copy(C, a); copy(C, b);
		if :: stored[C] == AB_BEGUN -> waited[C] = 0 :: else fi;
		stored[C] = AB_DONE
	}
	od
}

proctype Host(byte d) {
end:	do
	:: d_step { config[d] < HAS_A_AGAIN -> config[d]++ }
	:: d_step { !deadline[d] && (GRANTS == 0 || grants < GRANTS) && (config[d] == HAS_B || config[d] == HAS_BA && SERVES_B(C)) && GIVES(C, d) -> take(d, C, C) }
	od
}

/* Lane is what host d does with node n, besides locks. */
proctype Lane(byte d; byte n) {
end:	do
	:: d_step { config[d] == HAS_AB && SERVES_A(n) && stored[n] != AB_BEGUN -> store(n, AB_BEGUN) }
	:: d_step { config[d] == HAS_AB && stored[n] == AB_BEGUN -> store(n, AB_COMMITTED) }
	:: d_step { IS_A(d) && stored[n] == AB_BEGUN -> store(n, A) } /* undo */

	:: d_step { config[d] == HAS_BA && n == C && SERVES_B(n) && stored[n] != BA_BEGUN -> store(n, BA_BEGUN) }
	:: d_step { config[d] == HAS_BA && n == C && stored[n] == BA_BEGUN -> store(n, BA_COMMITTED) }
	:: d_step { config[d] == HAS_BA && (stored[n] == BA_BEGUN || stored[n] == BA_COMMITTED) && REFUSES_B(C) && waited[C] ->
		copy(n, C);
		if :: stored[n] == BA_BEGUN -> waited[n] = 0 :: else fi;
		stored[n] = BA_DONE
	}
	:: d_step { config[d] == HAS_B && n == C && stored[n] == BA_BEGUN -> store(n, B) }

	/* A node that missed the end of a change serves the new list when more of the other nodes of that
	   list do than a majority can do without. (B has no other nodes.) */
#ifdef ONE_WITNESS
#define IS_IN_FORCE(n) ONE_OTHER_SERVES_A(n)
#else
#define IS_IN_FORCE(n) BOTH_OTHERS_SERVE_A(n)
#endif
	:: d_step { (IS_A(d) || config[d] == HAS_AB) && !SERVES(n, d) && (stored[n] == BA_BEGUN || stored[n] == BA_COMMITTED) && IS_IN_FORCE(n) ->
		if :: SERVES_A(OTHER(n, 1)) -> copy(n, OTHER(n, 1)) :: else fi;
		if :: SERVES_A(OTHER(n, 2)) -> copy(n, OTHER(n, 2)) :: else fi;
		store(n, BA_DONE)
	}
#ifdef ONE_WITNESS
	:: d_step { config[d] == HAS_BA && n == C && !SERVES(n, d) && stored[n] == AB_COMMITTED && (SERVES_B(0) || SERVES_B(1)) -> store(n, AB_DONE) }
#endif

#ifdef ONE_DONE
#define A_IS_BACK(n) ONE_OTHER_SERVES_A(n)
#else
#define A_IS_BACK(n) BOTH_OTHERS_SERVE_A(n)
#endif
#define A_IS_REFUSED(n) (REFUSES_A(OTHER(n, 1)) || REFUSES_A(OTHER(n, 2)) || SERVES_B(OTHER(n, 1)) || SERVES_B(OTHER(n, 2)))
	/* The end of a quarantine, by a host that two other nodes serve: it gives the latest stage that they show. See Pair for another one. */
	:: d_step { stored[n] == LOST && waited[n] && SERVES(OTHER(n, 1), d) && SERVES(OTHER(n, 2), d) && config[d] != HAS_B ->
		copy(n, OTHER(n, 1)); copy(n, OTHER(n, 2));
		waited[n] = 0;
		if
		:: IS_A(d) -> stored[n] = (stored[OTHER(n, 1)] == AB_BEGUN || stored[OTHER(n, 2)] == AB_BEGUN -> AB_BEGUN : A)
		:: config[d] == HAS_AB -> stored[n] = (SERVES_B(C) -> AB_DONE : (A_IS_REFUSED(n) -> AB_COMMITTED : AB_BEGUN))
		:: config[d] == HAS_BA -> stored[n] = (A_IS_BACK(n) -> BA_DONE : (SERVES_B(C) -> BA_BEGUN : BA_COMMITTED))
		fi
	}
#if CRASHES
	:: d_step { d == 0 && n != C && crashes < CRASHES -> crashes++; store(n, LOST); key[n] = 0; counter[n] = 0 }
#endif
	od
}

/* A tick ends all leases and waits. */
proctype Clock() {
end:	do
	:: d_step { true ->
		do
		:: i < NODES ->
			key[i] = 0;
			waited[i] = (stored[i] == LOST || REFUSES_A(i) || REFUSES_B(i) -> 1 : 0);
			i++
		:: else -> break
		od;
		i = 0;
		deadline[0] = 0; deadline[1] = 0
	}
	od
}

init {
	atomic {
		stored[0] = A; stored[1] = A; stored[2] = A;
		run Clock();
		do
		:: i < D ->
			run Host(i);
			run Pair(i, 0, 1); run Pair(i, 0, C); run Pair(i, 1, C);
			run Lane(i, 0); run Lane(i, 1); run Lane(i, C);
			i++
		:: else -> break
		od;
		i = 0
	}
}
