package operator

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/webhook"
)

// gangs returns what the pod webhook knows of gangs. It reads the controllers' cache, or
// live where no controllers run.
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
