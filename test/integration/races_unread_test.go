package integration

import (
	"net/http"

	"lockstep.dev/lockstep/internal/report"
)

// enough is how many refused reads are more than a retry.
const enough = 4

// unreadable refuses reads of pods, by permission and by a sick API server. The operator keeps PVCs in
// use and unused ones meanwhile.
func (o *ourOperator) unreadable() {
	for _, status := range []int{http.StatusForbidden, http.StatusServiceUnavailable} {
		ns := o.namespace()
		used, free, pod := o.claim(ns, "used"), o.claim(ns, "free"), o.pod(ns, "a", "used")
		lag := o.lags() // memory shows a pod that was not bound: only a reading can tell
		o.bind(pod)
		o.until("the kubelet mounts it", func() bool { return o.kubelet.mounts(pod, used) })
		refused := o.proxy.Deny(status, listsPods(ns))
		defer refused.Release()
		before := len(o.proxy.Seen(listsPods(ns)))
		o.must(o.Delete(o.t.Context(), used))
		o.must(o.Delete(o.t.Context(), free))
		o.until("it was refused again and again", func() bool { return len(o.proxy.Seen(listsPods(ns))) >= before+enough })
		if o.lost(used, pod) || !o.there(free) {
			o.t.Fatalf("answered %d, pods were taken for gone", status)
		}
		refused.Release()
		o.gone(free)
		lag.Release()
		o.until("ours tells that it is in use", func() bool { return o.told(used, report.DeletionPostponed) })
		if o.lost(used, pod) {
			o.t.Fatal("lost once pods could be read")
		}
		o.end(pod)
		o.gone(used)
	}
}
