/* nodes: changes of the set of nodes while locks are held, for two daemons.
 *
 * The change goes from the list OLD_LIST to NEW_LIST (bits), the next one back, and so on. A daemon
 * works in a stage, by its config. A lock of stage
 *   OLD    needs a majority of OLD_LIST
 *   JOINT  needs a majority of each list, as does one of stage BACK
 *   NEW    needs a majority of NEW_LIST
 * Each node records how far the change is, and refuses daemons of other stages:
 *   1 serves OLD   2 serves OLD and JOINT   3 serves JOINT   4 serves JOINT and NEW
 * So OLD and NEW need not share a node, but no lock of both may be held at a time. In the change back,
 *   4 serves NEW, too   5 serves NEW and BACK   6 serves BACK   7 serves BACK and OLD
 * and so on: 1, 4, 7 have the numbers 1, 2, 3 of the list in use, in redlockd's words. A daemon does not know
 * the number from its config.
 *
 * model_test.go runs every row of its table. One configuration by hand:
 *
 *   spin -a -DEXTENDS=1 nodes.pml && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan
 *
 * Bounds, each a -D flag:
 *
 *   NODES     how many nodes there are, OLD_LIST and NEW_LIST which of them: one node to three
 *   TTL       ttl, max_ttl and quarantine, in ticks
 *   ATTEMPTS  how often both daemons together try to take the lock
 *   EXTENDS   how often they extend it
 *   CRASHES   how often a node of OLD_LIST loses its data
 *   LATER     how often a node of NEW_LIST does
 *   FENCES    count fencing tokens (1), or leave them out (0)
 *   ROLES     daemon 0 sleeps in stage OLD, daemon 1 makes the change and locks in stage NEW
 *   AWAKE     daemon 0 looks at each node in every tick, as all hosts do that are not stopped
 *   CHANGES   how many changes there are: A to B, back to A, and so on
 *   CONFIGS   how many configs a daemon has, one after the other. The next one may come at any time
 *   LATE      so many writes of stages are late: the daemon was stopped after its look, or the network has the packet
 *   UNDOS     how often the operator undoes a change that has begun
 *
 * Planted mistakes:
 *
 *   UNION               JOINT needs a majority of all nodes
 *   NO_WAIT             NEW is served as soon as a majority refuses OLD
 *   SKIPS               a daemon of stage NEW makes any node serve it
 *   RESTARTED_EVIDENCE  a node that was restarted counts as having refused since before
 *   SCATTERED           the nodes of a majority may have refused OLD at different times
 *   NO_STAGE_COPY       a node that lost its data serves the stages of the daemon that admits it
 *   NO_COUNTERS         a node serves NEW with the counters that it has
 *   EARLY_COUNTERS      it copies them from nodes that do not refuse OLD yet
 *   NO_NUMBER           a write compares the lists and the step, and not the number
 *   OLD_EVIDENCE        evidence of an earlier change between the same lists counts
 *   NO_NOT_AFTER        a write may come at any time
 *   NOT_REPLACED        a daemon that was refused because its list was replaced takes an empty node for a new one
 *
 * What is simpler than in redlockd: a vote and its answer are one step, and so is the write-back
 * of a fencing token. A release reaches all nodes at once. New nodes have been admitted when the
 * first change begins. Daemons of stage JOINT do not take a lock as one of stage OLD can. In later changes, no
 * node loses its data: see back.pml.
 */

#define D 2

#ifndef NODES
#define NODES 3
#endif
#ifndef OLD_LIST
#define OLD_LIST 1
#endif
#ifndef NEW_LIST
#define NEW_LIST 7
#endif
#ifndef TTL
#define TTL 1
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef EXTENDS
#define EXTENDS 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef LATER
#define LATER 0
#endif
#ifndef FENCES
#define FENCES 0
#endif
#ifndef CHANGES
#define CHANGES 1
#endif
#ifndef CONFIGS
#define CONFIGS (2 * CHANGES + 1)
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef UNDOS
#define UNDOS 0
#endif

#ifdef NO_WAIT
#define WAIT 0
#else
#define WAIT TTL
#endif

#ifdef ROLES
#define MAY_FOLLOW(d) (d == 1)
#define MAY_LOCK(d) (config[d] != JOINT)
#else
#define MAY_FOLLOW(d) true
#define MAY_LOCK(d) true
#endif

/* Daemons are alike. For one change it is enough that daemon 1 finds evidence. */
#if CHANGES > 1
#define COMMITS(d) true
#else
#define COMMITS(d) (d == 1)
#endif

#if NODES < 3
#define ROOM 3
#else
#define ROOM NODES
#endif

#define BIT(n) (1 << (n))
#define HAS(set, n) (((set) >> (n)) & 1)
#define COUNT(set) (HAS(set, 0) + HAS(set, 1) + HAS(set, 2) + HAS(set, 3) + HAS(set, 4) + HAS(set, 5))
#define MAJORITY(set, list) (2 * COUNT((set) & (list)) > COUNT(list))
#define ALL (OLD_LIST | NEW_LIST)
#define AT(d, n) ((d) * NODES + (n))

/* stages, in the order of the configs; then OLD again */
#define OLD 1
#define JOINT 2
#define NEW 3
#define BACK 4
#define STAGE(c) (((c) - 1) % 4 + 1)
#define IS_JOINT(stage) ((stage) == JOINT || (stage) == BACK)
#define FROM_OLD(stage) ((stage) == OLD || (stage) == JOINT) /* its old list, or the only one, is OLD_LIST */
#define BEFORE(stage) (FROM_OLD(stage) -> OLD_LIST : NEW_LIST)
#define IS_OLD_AFTER(stage) ((stage) == OLD || (stage) == BACK)
#define AFTER(stage) (IS_OLD_AFTER(stage) -> OLD_LIST : NEW_LIST)

#ifdef UNION
#define JOINT_QUORUM(set) MAJORITY(set, ALL)
#else
#define JOINT_QUORUM(set) (MAJORITY(set, OLD_LIST) && MAJORITY(set, NEW_LIST))
#endif
#define QUORUM(stage, set) (stage == OLD && MAJORITY(set, OLD_LIST) || IS_JOINT(stage) && JOINT_QUORUM(set) || stage == NEW && MAJORITY(set, NEW_LIST))
#define LISTED(stage, n) HAS(BEFORE(stage) | AFTER(stage), n)
#define KNOWS_OLD(stage) ((stage) != NEW)
#define KNOWS_NEW(stage) ((stage) != OLD)

/* nodes */
byte step[ROOM];   /* 1 to 4, or more in later changes; 0: quarantined */
byte key[NODES];   /* the token that has the lock */
byte ttl[NODES];
byte counter[NODES];
byte quarantine[NODES];
#define NUMBER(p) (((p) + 2) / 3)    /* of the list in use or, in a change, of the old list */
#define PART(p) (((p) + 2) % 3)      /* of a change: 0 none, 1 begun, 2 committed */
#define FIRST(number) (3 * (number) - 2) /* a node with this list, and no change from it */
#define IS_OLD(number) ((number) % 2 == 1)
#define IS_OF(p, stage) ((p) && PART(p) && IS_OLD(NUMBER(p)) == FROM_OLD(stage)) /* a joint stage; the change is not done */
#define IS_DONE(p, stage) (PART(p) == 0 && (p) > 1 && IS_OLD(NUMBER(p)) != FROM_OLD(stage))
#define HAS_LIST(p, stage) ((p) && PART(p) < 2 && IS_OLD(NUMBER(p)) == FROM_OLD(stage))
#define SERVES(n, stage) (IS_JOINT(stage) && (IS_OF(step[n], stage) || IS_DONE(step[n], stage)) || !IS_JOINT(stage) && HAS_LIST(step[n], stage))
/* The number of the change of a joint stage that has made node n refuse its old list; 0: none. */
#define REFUSES(n, stage) (IS_DONE(step[n], stage) -> NUMBER(step[n]) - 1 : (PART(step[n]) == 2 && IS_OF(step[n], stage) -> NUMBER(step[n]) : 0))

/* daemons */
#define IDLE 0
#define ACQUIRING 1
#define HELD 2
#define EXTENDING 3 /* the lease is held, too */
byte config[D];    /* its stage */
byte phase[D];
byte token[D];
byte stage[D];     /* of the ballot that is under way */
byte asked[D];     /* nodes that have not answered, and still have the epoch that the call names */
byte votes[D];
byte elapsed[D];   /* since the ballot began */
byte deadline[D];
byte fence[D], above[D];

/* What a daemon knows about nodes that refuse the old list of its change. */
byte change[D];    /* its number; 0: not known */
byte refusing[D];  /* seen to refuse, and not restarted since */
byte wait[D];      /* since a majority was seen */
byte evidence[D];  /* seen again after that, with the same epoch */
byte copied[D];    /* the largest counter that was read with it */

bit replaced;      /* daemon 0 was refused because its list was replaced */

/* The write that is late. */
byte lateNode;     /* plus 1; 0: none */
byte lateFrom, lateTo, lateCounter, lateUndos, lates;

#define FORGET_LATE lateNode = 0; lateFrom = 0; lateTo = 0; lateCounter = 0; lateUndos = 0

byte undos;
bit commits;       /* a daemon has sent a commit in this tick */

byte attempts, extends, crashes, later, largest;
byte i;

#define HOLDS(d) (phase[d] >= HELD && deadline[d] > 0)

inline exclusion() { assert(!(deadline[0] > 0 && deadline[1] > 0)) } /* one holder */

/* ask begins a ballot: the call names the epoch of each node that serves the daemon's stage. */
inline ask(d) {
	stage[d] = STAGE(config[d]); elapsed[d] = 0; votes[d] = 0; asked[d] = 0;
	do
	:: i < NODES ->
		if :: LISTED(stage[d], i) && SERVES(i, stage[d]) -> asked[d] = asked[d] | BIT(i) :: else fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline end_ballot(d) { stage[d] = 0; asked[d] = 0; votes[d] = 0; elapsed[d] = 0 }

/* release ends an attempt or a lease. */
inline release(d) {
	do
	:: i < NODES ->
		if :: key[i] == token[d] -> key[i] = 0; ttl[i] = 0 :: else fi;
		i++
	:: else -> break
	od;
	i = 0;
	end_ballot(d);
	phase[d] = IDLE; token[d] = 0; deadline[d] = 0; fence[d] = 0; above[d] = 0
}

/* write_back raises the counters of the nodes that granted the attempt and still have its key. votes[d] is
   the set of these nodes then. */
inline write_back(d) {
	do
	:: i < NODES ->
		if
		:: HAS(votes[d], i) && (key[i] != token[d] || !SERVES(i, stage[d])) -> votes[d] = votes[d] & ~BIT(i)
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < NODES && QUORUM(stage[d], votes[d]) ->
		if :: HAS(votes[d], i) && counter[i] < fence[d] -> counter[i] = fence[d] :: else fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline grant(d) {
#if FENCES
	write_back(d);
#endif
	if
	:: QUORUM(stage[d], votes[d]) ->
		phase[d] = HELD; deadline[d] = TTL - elapsed[d];
		end_ballot(d);
#if FENCES
		assert(fence[d] > above[d]); /* token order */
		if :: fence[d] > largest -> largest = fence[d] :: else fi;
#endif
		exclusion()
	:: else -> release(d)
	fi
}

inline forget_evidence(d) { change[d] = 0; refusing[d] = 0; evidence[d] = 0; copied[d] = 0; wait[d] = 0 }

proctype Daemon(byte d) {
end:	do
	/* A config is rolled out, or rolled back. A daemon may sleep for any time before it follows. */
	:: d_step { !IS_JOINT(STAGE(config[d])) && config[d] < CONFIGS && MAY_FOLLOW(d) -> config[d]++ }
	:: d_step { IS_JOINT(STAGE(config[d])) && config[d] < CONFIGS -> config[d]++; forget_evidence(d) }
#if CHANGES == 1 && !defined(ROLES)
	:: d_step { config[d] == JOINT -> config[d] = OLD; forget_evidence(d) }
	:: d_step { config[d] == NEW -> config[d] = JOINT }
#endif

	:: d_step { phase[d] == IDLE && attempts < ATTEMPTS && MAY_LOCK(d) ->
		attempts++;
		token[d] = attempts; above[d] = largest; phase[d] = ACQUIRING;
		ask(d)
	}
	:: d_step { phase[d] == ACQUIRING && QUORUM(stage[d], votes[d]) && elapsed[d] < TTL -> grant(d) }
	:: d_step { phase[d] == ACQUIRING && elapsed[d] == TTL || phase[d] >= HELD && deadline[d] == 0 || FENCES && phase[d] == HELD -> release(d) }
	:: d_step { extends < EXTENDS && phase[d] == HELD && deadline[d] ->
		extends++;
		phase[d] = EXTENDING;
		ask(d)
	}
	:: d_step { phase[d] == EXTENDING && QUORUM(stage[d], votes[d]) && deadline[d] ->
		if :: TTL - elapsed[d] > deadline[d] -> deadline[d] = TTL - elapsed[d] :: else fi;
		phase[d] = HELD;
		end_ballot(d);
		exclusion()
	}
	:: d_step { phase[d] == EXTENDING && elapsed[d] == TTL -> phase[d] = HELD; end_ballot(d) }
	od
}

/* new_epoch makes calls that are under way to node n fail. */
inline new_epoch(n) { asked[0] = asked[0] & ~BIT(n); asked[1] = asked[1] & ~BIT(n) }

inline set_step(n, to) { step[n] = to; new_epoch(n) }

#if LATE
#define LOOK atomic
#else
#define LOOK d_step
#endif

#if FENCES && !defined(NO_COUNTERS)
#define COUNTER(n) counter[n]
#define COPIED(d) copied[d]
#else
#define COUNTER(n) 0
#define COPIED(d) 0
#endif

#define OTHER(n) (((n) + 1) % NODES)

/* A majority of a list was seen, and no node of it has a larger number than node n. */
#if CHANGES > 1
#define NOT_LATER(n, i) (step[i] && NUMBER(step[i]) <= NUMBER(step[n]))
#define NONE_IS_LATER(n, list) MAJORITY(NOT_LATER(n, 0) + 2 * NOT_LATER(n, 1) + 4 * NOT_LATER(n, 2), list)
#else
#define NONE_IS_LATER(n, list) true
#endif
#define IS_COMMITTED(i) (HAS(OLD_LIST, i) && step[i] >= 3)

#ifdef OLD_EVIDENCE
#define IS_SAME(d, n) (REFUSES(n, STAGE(config[d])) != 0)
#define IS_CHANGE(d, n) true
#else
#define IS_SAME(d, n) (REFUSES(n, STAGE(config[d])) == change[d])
#define IS_CHANGE(d, n) (NUMBER(step[n]) == change[d])
#endif

#ifdef SCATTERED
#define SEEN_TOGETHER(d) true
#else
#define SEEN_TOGETHER(d) MAJORITY(refusing[d], BEFORE(STAGE(config[d])))
#endif

/* write makes daemon d write what it has decided after its look: now, or late. */
inline write(d, n, to, by) {
#if LATE
	if
	:: lates < LATE && lateNode == 0 ->
		lates++; lateNode = n + 1; lateFrom = step[n]; lateTo = to; lateCounter = by; lateUndos = undos
	:: true -> set_step(n, to); counter[n] = (by > counter[n] -> by : counter[n])
	fi
#else
	set_step(n, to);
	if :: by > counter[n] -> counter[n] = by :: else fi
#endif
}

#ifdef NO_NUMBER
#define IS_AS_SEEN(n) (step[n] && step[n] % 6 == lateFrom % 6)
#else
#define IS_AS_SEEN(n) (step[n] == lateFrom)
#endif

#if LATE
/* Late delivers a write. */
proctype Late() {
end:	do
	:: d_step { lateNode ->
		i = lateNode - 1;
		if
		:: IS_AS_SEEN(i) ->
			assert(PART(lateTo) != 2 || lateUndos == undos); /* an undo is final */
			set_step(i, step[i] + lateTo - lateFrom);
			if :: lateCounter > counter[i] -> counter[i] = lateCounter :: else fi
		:: else
		fi;
		FORGET_LATE; i = 0
	}
	od
}
#endif

#define OTHERS(n, list) (COUNT(admitted & (list) & ~BIT(n)))
/* Every majority has one of these other nodes. If a majority lost its data, nothing can be copied. */
#ifdef NOT_REPLACED
#define MAY_BE_NEW(d) true
#else
#define MAY_BE_NEW(d) (d == 1 || !replaced)
#endif
#define HAS_SOURCES(d, n, list) (!HAS(list, n) || 2 * OTHERS(n, list) >= COUNT(list) || MAY_BE_NEW(d) && 2 * COUNT(list & ~admitted) > COUNT(list))

/* admit lets a node vote again that lost its data. It copies the largest step and counter of the
   other nodes that the daemon has. A daemon of stage NEW does not know OLD_LIST: it
   never lets a node serve OLD (step 3). */
inline admit(d, n) {
	step[n] = config[d];
	do
	:: i < NODES ->
		if
		:: i != n && (KNOWS_OLD(config[d]) && HAS(OLD_LIST, i) || KNOWS_NEW(config[d]) && HAS(NEW_LIST, i)) ->
#ifndef NO_STAGE_COPY
			if :: step[i] > step[n] -> step[n] = step[i] :: else fi;
#endif
			if :: counter[i] > counter[n] -> counter[n] = counter[i] :: else fi
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	new_epoch(n)
}

/* Lane is what one daemon does with one node. Each step is one script. */
proctype Lane(byte d; byte n) {
	byte admitted;
end:	do
	/* A vote for an attempt or an extension. A node that lacks the key of a held lease is repaired, and counts from the
	   next extension on. So a lease of stage OLD becomes one of stage JOINT. */
	:: d_step { HAS(asked[d], n) && phase[d] == ACQUIRING && key[n] == 0 ->
		asked[d] = asked[d] & ~BIT(n); votes[d] = votes[d] | BIT(n);
		key[n] = token[d]; ttl[n] = TTL;
#if FENCES
		counter[n]++;
		if :: counter[n] > fence[d] -> fence[d] = counter[n] :: else fi
#endif
	}
	:: d_step { HAS(asked[d], n) && phase[d] == EXTENDING && (key[n] == token[d] || key[n] == 0 && deadline[d]) ->
		asked[d] = asked[d] & ~BIT(n);
		if :: key[n] == token[d] -> votes[d] = votes[d] | BIT(n) :: else fi;
		key[n] = token[d]; ttl[n] = TTL;
#if FENCES
		if :: counter[n] < fence[d] -> counter[n] = fence[d] :: else fi
#endif
	}

	/* Steps of the change. Only a daemon of a joint stage knows both lists. A change begins with the number that the nodes
	   of the old list show; none of them may show a larger one. */
	:: LOOK { IS_JOINT(STAGE(config[d])) && HAS(BEFORE(STAGE(config[d])), n) && PART(step[n]) == 0 && HAS_LIST(step[n], STAGE(config[d])) &&
			NUMBER(step[n]) <= CHANGES && NONE_IS_LATER(n, BEFORE(STAGE(config[d]))) ->
		write(d, n, step[n] + 1, 0)
	}
	:: LOOK { IS_JOINT(STAGE(config[d])) && HAS(BEFORE(STAGE(config[d])), n) && PART(step[n]) == 1 && IS_OF(step[n], STAGE(config[d])) ->
#if UNDOS
		commits = 1;
#endif
		write(d, n, step[n] + 1, 0)
	}
#if CHANGES > 1
	/* A node that left joins again, whatever its state is: its number shows that it is behind. */
	:: LOOK { IS_JOINT(STAGE(config[d])) && !HAS(BEFORE(STAGE(config[d])), n) && step[n] && HAS_LIST(step[OTHER(n)], STAGE(config[d])) &&
			NUMBER(step[OTHER(n)]) <= CHANGES && step[n] < FIRST(NUMBER(step[OTHER(n)])) + 1 && NONE_IS_LATER(OTHER(n), BEFORE(STAGE(config[d]))) ->
		write(d, n, FIRST(NUMBER(step[OTHER(n)])) + 1, 0)
	}
	/* A node that missed steps gets the list in use, and the counters of a node that serves it. */
	:: LOOK { HAS(BEFORE(STAGE(config[d])), n) && step[n] && HAS_LIST(step[OTHER(n)], STAGE(config[d])) && HAS(BEFORE(STAGE(config[d])), OTHER(n)) &&
			NUMBER(step[n]) < NUMBER(step[OTHER(n)]) ->
		write(d, n, FIRST(NUMBER(step[OTHER(n)])), COUNTER(OTHER(n)))
	}
#endif
	:: d_step { COMMITS(d) && IS_JOINT(STAGE(config[d])) && HAS(BEFORE(STAGE(config[d])), n) && REFUSES(n, STAGE(config[d])) && !(HAS(refusing[d], n) && IS_SAME(d, n)) ->
		if :: IS_SAME(d, n) -> skip :: else -> forget_evidence(d) fi;
		change[d] = REFUSES(n, STAGE(config[d]));
		refusing[d] = refusing[d] | BIT(n);
		wait[d] = WAIT;
#ifndef SCATTERED
		evidence[d] = 0; copied[d] = 0
#endif
	}
	:: d_step { COMMITS(d) && HAS(refusing[d], n) && !HAS(evidence[d], n) && SEEN_TOGETHER(d) && wait[d] == 0 && step[n] && IS_SAME(d, n) ->
		evidence[d] = evidence[d] | BIT(n);
#ifndef EARLY_COUNTERS
		if :: counter[n] > copied[d] -> copied[d] = counter[n] :: else fi
#endif
	}
#ifdef EARLY_COUNTERS
	:: d_step { COMMITS(d) && config[d] == JOINT && HAS(OLD_LIST, n) && counter[n] > copied[d] && step[n] == 2 -> copied[d] = counter[n] }
#endif
	:: LOOK { COMMITS(d) && IS_JOINT(STAGE(config[d])) && MAJORITY(evidence[d], BEFORE(STAGE(config[d]))) && HAS(AFTER(STAGE(config[d])), n) && IS_OF(step[n], STAGE(config[d])) && IS_CHANGE(d, n) ->
		write(d, n, FIRST(NUMBER(step[n]) + 1), COPIED(d))
	}
	/* A node that serves the new list is evidence, too. */
	:: LOOK { HAS(AFTER(STAGE(config[d])), n) && step[n] && PART(step[n]) && IS_OLD(NUMBER(step[n])) != IS_OLD_AFTER(STAGE(config[d])) &&
			step[OTHER(n)] == FIRST(NUMBER(step[n]) + 1) ->
		write(d, n, step[OTHER(n)], COUNTER(OTHER(n)))
	}
#if UNDOS
	/* The operator gives all hosts that are at work the old list, and undoes the change. */
	:: d_step { undos < UNDOS && config[d] == OLD && HAS(OLD_LIST, n) && step[n] == 2 && !commits && !(IS_COMMITTED(0) || IS_COMMITTED(1) || IS_COMMITTED(2)) ->
		undos++; set_step(n, 1)
	}
#endif
#ifdef SKIPS
	:: d_step { config[d] == NEW && HAS(NEW_LIST, n) && step[n] && step[n] < 4 -> set_step(n, 4) }
#endif

#if CRASHES + LATER > 0
	/* The end of a quarantine. */
	:: d_step { step[n] == 0 && quarantine[n] == 0 && LISTED(config[d], n) ->
		do
		:: i < NODES -> if :: step[i] -> admitted = admitted | BIT(i) :: else fi; i++
		:: else -> break
		od;
		i = 0;
		if
		:: (!KNOWS_OLD(config[d]) || HAS_SOURCES(d, n, OLD_LIST)) && (!KNOWS_NEW(config[d]) || HAS_SOURCES(d, n, NEW_LIST)) -> admit(d, n)
		:: else
		fi;
		admitted = 0
	}
#endif
	od
}

#define TICK(x) x = (x > 0 -> x - 1 : 0)

inline lose_data(n) {
	key[n] = 0; ttl[n] = 0; counter[n] = 0; step[n] = 0; quarantine[n] = TTL;
#ifndef RESTARTED_EVIDENCE
	refusing[0] = refusing[0] & ~BIT(n); refusing[1] = refusing[1] & ~BIT(n);
#endif
#if !defined(RESTARTED_EVIDENCE) && !defined(SCATTERED)
	evidence[0] = evidence[0] & ~BIT(n); evidence[1] = evidence[1] & ~BIT(n);
#endif
#if LATE
	if :: lateNode == n + 1 -> FORGET_LATE :: else fi; /* it has another word */
#endif
	new_epoch(n)
}

proctype Environment() {
end:	do
	:: d_step { true ->
		do
		:: i < NODES ->
			TICK(ttl[i]); TICK(quarantine[i]);
			if :: ttl[i] == 0 -> key[i] = 0 :: else fi;
			i++
		:: else -> break
		od;
		i = 0;
#if LATE && !defined(NO_NOT_AFTER)
		FORGET_LATE;
#endif
		commits = 0;
#ifdef AWAKE
		do
		:: i < NODES -> if :: HAS(OLD_LIST, i) && config[0] == OLD && REFUSES(i, JOINT) -> replaced = 1 :: else fi; i++
		:: else -> break
		od;
		i = 0;
#endif
		do
		:: i < D ->
			TICK(wait[i]);
			TICK(deadline[i]);
			if :: (phase[i] == ACQUIRING || phase[i] == EXTENDING) && elapsed[i] < TTL -> elapsed[i]++ :: else fi;
			i++
		:: else -> break
		od;
		i = 0
	}
#if CRASHES > 0
	:: d_step { crashes < CRASHES -> crashes++; lose_data(0) }
#endif
#if LATER > 0
	:: d_step { later < LATER -> later++; lose_data(NODES - 1) }
#endif
	od
}

init {
	atomic {
		do
		:: i < NODES -> step[i] = (HAS(OLD_LIST, i) -> 1 : 2); i++
		:: else -> break
		od;
		i = 0;
		config[0] = OLD; config[1] = OLD;
		run Environment();
#if LATE
		run Late();
#endif
		run Daemon(0); run Daemon(1);
		do
		:: i < NODES -> run Lane(0, i); run Lane(1, i); i++
		:: else -> break
		od;
		i = 0
	}
}
