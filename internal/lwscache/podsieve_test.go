package lwscache

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/sieve"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestPodsAreDecodedAsFarAsTheyAreKept(t *testing.T) {
	fakeapi.CheckCodecs(t, sieve.Codecs(trimmedSieve()), func(pod *corev1.Pod) any {
		kept, err := trimPod(pod)
		if err != nil {
			t.Fatal(err)
		}
		return kept
	})
}
