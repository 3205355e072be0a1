/* nodes: a change of the set of nodes while locks are held, for two daemons.
 *
 * The change goes from the list OLD_LIST to NEW_LIST (bits). A daemon works in a stage, by its
 * config. A lock of stage
 *   OLD    needs a majority of OLD_LIST
 *   JOINT  needs a majority of each list
 *   NEW    needs a majority of NEW_LIST
 * Each node records how far the change is, and refuses daemons of other stages:
 *   1 serves OLD   2 serves OLD and JOINT   3 serves JOINT   4 serves JOINT and NEW
 * So OLD and NEW need not share a node, but no lock of both may be held at a time.
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
 *
 * What is simpler than in redlockd: a vote and its answer are one step, and so is the write-back
 * of a fencing token. A release reaches all nodes at once. New nodes have been admitted when the
 * change begins. A later change is not here: for it, JOINT and NEW of this one are OLD.
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

#define BIT(n) (1 << (n))
#define HAS(set, n) (((set) >> (n)) & 1)
#define COUNT(set) (HAS(set, 0) + HAS(set, 1) + HAS(set, 2) + HAS(set, 3) + HAS(set, 4) + HAS(set, 5))
#define MAJORITY(set, list) (2 * COUNT((set) & (list)) > COUNT(list))
#define ALL (OLD_LIST | NEW_LIST)
#define AT(d, n) ((d) * NODES + (n))

/* stages */
#define OLD 1
#define JOINT 2
#define NEW 3

#ifdef UNION
#define JOINT_QUORUM(set) MAJORITY(set, ALL)
#else
#define JOINT_QUORUM(set) (MAJORITY(set, OLD_LIST) && MAJORITY(set, NEW_LIST))
#endif
#define QUORUM(stage, set) (stage == OLD && MAJORITY(set, OLD_LIST) || stage == JOINT && JOINT_QUORUM(set) || stage == NEW && MAJORITY(set, NEW_LIST))
#define LISTED(stage, n) HAS((stage == OLD -> OLD_LIST : (stage == JOINT -> ALL : NEW_LIST)), n)
#define KNOWS_OLD(stage) (stage != NEW)
#define KNOWS_NEW(stage) (stage != OLD)

/* nodes */
byte step[NODES];  /* 1 to 4; 0: quarantined */
byte key[NODES];   /* the token that has the lock */
byte ttl[NODES];
byte counter[NODES];
byte quarantine[NODES];
#define SERVES(n, stage) (stage == OLD && (step[n] == 1 || step[n] == 2) || stage == JOINT && step[n] >= 2 || stage == NEW && step[n] == 4)
#define REFUSES_OLD(n) (step[n] >= 3)

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

/* What the daemon that commits knows about nodes that refuse OLD. (Daemons are alike: it is daemon 1.) */
#define COMMITTER 1
byte refusing;     /* seen to refuse, and not restarted since */
byte wait;         /* since a majority was seen */
byte evidence;     /* seen again after that, with the same epoch */
byte copied;       /* the largest counter that was read with it */

byte attempts, extends, crashes, later, largest;
byte i;

#define HOLDS(d) (phase[d] >= HELD && deadline[d] > 0)

inline exclusion() { assert(!(deadline[0] > 0 && deadline[1] > 0)) } /* one holder */

/* ask begins a ballot: the call names the epoch of each node that serves the daemon's stage. */
inline ask(d) {
	stage[d] = config[d]; elapsed[d] = 0; votes[d] = 0; asked[d] = 0;
	do
	:: i < NODES ->
		if :: LISTED(config[d], i) && SERVES(i, config[d]) -> asked[d] = asked[d] | BIT(i) :: else fi;
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

inline forget_evidence(d) {
	if :: d == COMMITTER -> refusing = 0; evidence = 0; copied = 0; wait = 0 :: else fi
}

proctype Daemon(byte d) {
end:	do
	/* A config is rolled out, or rolled back. A daemon may sleep for any time before it follows. */
	:: d_step { config[d] == OLD && MAY_FOLLOW(d) -> config[d] = JOINT }
	:: d_step { config[d] == JOINT -> config[d] = NEW; forget_evidence(d) }
#ifndef ROLES
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

#ifdef SCATTERED
#define SEEN_TOGETHER true
#else
#define SEEN_TOGETHER MAJORITY(refusing, OLD_LIST)
#endif

#define OTHERS(n, list) (COUNT(admitted & (list) & ~BIT(n)))
/* Every majority has one of these other nodes. If a majority lost its data, nothing can be copied. */
#define HAS_SOURCES(n, list) (!HAS(list, n) || 2 * OTHERS(n, list) >= COUNT(list) || 2 * COUNT(list & ~admitted) > COUNT(list))

/* admit lets a node vote again that lost its data. It copies the largest step and counter of the
   other nodes of each list that the daemon has. A daemon of stage NEW does not know OLD_LIST: it
   never lets a node serve OLD (step 3). */
inline admit(d, n) {
	step[n] = config[d];
	do
	:: i < NODES ->
		if
		:: i != n && (KNOWS_OLD(config[d]) && HAS(OLD_LIST, i) && HAS(OLD_LIST, n) || KNOWS_NEW(config[d]) && HAS(NEW_LIST, i) && HAS(NEW_LIST, n)) ->
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

	/* Steps of the change. Only a daemon of stage JOINT knows both lists. */
	:: d_step { config[d] == JOINT && step[n] == 1 -> set_step(n, 2) }
	:: d_step { config[d] == JOINT && HAS(OLD_LIST, n) && step[n] == 2 -> set_step(n, 3) }
	:: d_step { d == COMMITTER && config[d] == JOINT && HAS(OLD_LIST, n) && REFUSES_OLD(n) && !HAS(refusing, n) ->
		refusing = refusing | BIT(n);
		wait = WAIT;
#ifndef SCATTERED
		evidence = 0; copied = 0
#endif
	}
	:: d_step { d == COMMITTER && HAS(refusing, n) && !HAS(evidence, n) && SEEN_TOGETHER && wait == 0 && step[n] ->
		evidence = evidence | BIT(n);
#ifndef EARLY_COUNTERS
		if :: counter[n] > copied -> copied = counter[n] :: else fi
#endif
	}
#ifdef EARLY_COUNTERS
	:: d_step { d == COMMITTER && config[d] == JOINT && HAS(OLD_LIST, n) && counter[n] > copied && step[n] == 2 -> copied = counter[n] }
#endif
	:: d_step { d == COMMITTER && MAJORITY(evidence, OLD_LIST) && HAS(NEW_LIST, n) && (step[n] == 2 || step[n] == 3) ->
		set_step(n, 4);
#ifndef NO_COUNTERS
		if :: copied > counter[n] -> counter[n] = copied :: else fi
#endif
	}
	/* A node that serves NEW is evidence, too. */
	:: d_step { KNOWS_NEW(config[d]) && HAS(NEW_LIST, n) && (step[n] == 2 || step[n] == 3) &&
			step[(n + 1) % NODES] == 4 ->
		set_step(n, 4);
#ifndef NO_COUNTERS
		if :: counter[(n + 1) % NODES] > counter[n] -> counter[n] = counter[(n + 1) % NODES] :: else fi
#endif
	}
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
		:: (!KNOWS_OLD(config[d]) || HAS_SOURCES(n, OLD_LIST)) && (!KNOWS_NEW(config[d]) || HAS_SOURCES(n, NEW_LIST)) -> admit(d, n)
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
	new_epoch(n);
#ifndef RESTARTED_EVIDENCE
	refusing = refusing & ~BIT(n)
#endif
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
		TICK(wait);
		do
		:: i < D ->
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
		run Daemon(0); run Daemon(1);
		do
		:: i < NODES -> run Lane(0, i); run Lane(1, i); i++
		:: else -> break
		od;
		i = 0
	}
}
