package operator

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/webhook"
)

// gangs tells the pod webhook which pods are parts of gangs. Where controllers run,
// it shares their cache; a process of webhooks alone has none and asks each time.
func (o *Options) gangs(mgr ctrl.Manager) webhook.Gangs {
	kin := lwscache.NewKin(nil, mgr.GetAPIReader())
	if o.keepsSets() {
		kin = lwscache.NewKin(mgr.GetCache(), mgr.GetAPIReader())
	}
	gangs := webhook.Gangs{Kin: kin}
	if block := o.Config.GangSchedulingManagement; block != nil {
		gangs.Otherwise = gang.Named(*block.SchedulerProvider)
	}
	return gangs
}
