package plane

import (
	"fmt"

	"lockstep.dev/lockstep/local/stages"
)

// auditPolicyText logs the metadata of every request, once, when it is
// answered.
const auditPolicyText = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
- level: Metadata
`

// schedulerTemplate takes a kubeconfig and a client limit with its burst. There
// are two profiles, and every pod chooses by its schedulerName: the scheduler as it
// is released, and the same with Lockstep's plugin.
const schedulerTemplate = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %q
  qps: %d
  burst: %d
leaderElection:
  leaderElect: false
profiles:
- schedulerName: default-scheduler
- schedulerName: lockstep-scheduler
  plugins:
    preFilter:
      enabled:
      - name: ClaimProtection
    multiPoint:
      enabled:
      - name: ClaimProtection
  pluginConfig:
  - name: ClaimProtection
    args:
      mode: barrier
`

// kwokOptions raise kwok's parallelism above its default of four, so that
// simulated kubelets are never what a test waits for, and keep its kubelet-like
// debugging endpoints closed.
const kwokOptions = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  enableDebuggingHandlers: false
  nodePlayStageParallelism: 16
  nodeLeaseParallelism: 16
  podPlayStageParallelism: 16
  podsOnNodeSyncParallelism: 4
---
`

// stockSchedulerQPS is the scheduler's default client limit, with twice that as
// burst.
const stockSchedulerQPS = 50

// writeConfiguration writes the configuration files that depend on settings.
func writeConfiguration(l Layout, s Settings) error {
	kwokStages, err := stages.Config(s.Stages)
	if err != nil {
		return err
	}
	files := map[string]string{
		auditPolicy:   auditPolicyText,
		schedulerFile: schedulerConfiguration(l, s),
		kwokFile:      kwokOptions + kwokStages,
	}
	for name, text := range files {
		if err := writeFile(l.config(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// schedulerConfiguration never lets the scheduler be slower than the controller
// manager: a raised limit is meant to run pods sooner.
func schedulerConfiguration(l Layout, s Settings) string {
	qps := max(stockSchedulerQPS, s.ControllerQPS)
	return fmt.Sprintf(schedulerTemplate, l.kubeconfigOf(Scheduler), qps, 2*qps)
}
