package pvchold

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

// A claim whose workloads or words could not be read or written for hours, while an API
// server or a webhook was down, was looked at again up to a quarter of an hour after that.
func TestAnErrorThatIsOverCostsLittleMore(t *testing.T) {
	limiter, claim := options().RateLimiter, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "c"}}
	var last time.Duration
	for range 100 {
		last = limiter.When(claim)
	}
	if last != retryAtMost {
		t.Errorf("tries again in %s", last)
	}
}
