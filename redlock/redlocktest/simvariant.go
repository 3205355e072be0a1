package redlocktest

// Variant is a deliberate mistake in a simulated node's scripts: what a test
// plants to show that the mistake would be found.
type Variant string

const (
	ReleaseBlindly Variant = "DEL without comparing the token"
	ExtendSets     Variant = "an extension sets the key where it is missing"
	ExtendShortens Variant = "an extension may shorten the expiry"
	IgnoreNotAfter Variant = "an acquire is acted on however late it comes"
	IgnoreEpoch    Variant = "the epoch is not compared by scripts that vote"
	FenceBlindly   Variant = "a fencing token is written back where the lock is another's"
	ForceBlindly   Variant = "a lock is forced away whoever holds it by then"
	CompareNothing Variant = "an epoch is written whatever is there"
	HandOverFence  Variant = "a hand-over keeps the fencing token"
	CountPlaces    Variant = "a semaphore admits as many as it has places, whichever they ask for"
	MixKinds       Variant = "one kind of those that several share is as good as another"
	LieAhead       Variant = "grants have a fencing token that is centuries ahead"
	HideKind       Variant = "readers leave the lock's key free for other clients"
)

func (s *state) variant(v Variant) bool { return s.variants[v] }
