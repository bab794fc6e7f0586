package program

import (
	"github.com/spf13/cobra"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"lockstep.dev/lockstep/scheduling"
)

// schedulerPlugins are the out-of-tree plugins compiled into the scheduler,
// each as scheduler.WithPlugin(name, factory). This is the only place to
// register one; a scheduler configuration then enables it by name.
var schedulerPlugins = []scheduler.Option{
	scheduler.WithPlugin(scheduling.Name, scheduling.New),
}

func newScheduler() *cobra.Command {
	return scheduler.NewSchedulerCommand(schedulerPlugins...)
}
