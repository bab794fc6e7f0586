package pvccache

import (
	"testing"

	"lockstep.dev/lockstep/internal/sieve"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestPodsAreDecodedAsFarAsTheyConcernPVCs(t *testing.T) {
	fakeapi.CheckCodecs(t, sieve.Codecs(usesSieve()), UsesOf)
}
