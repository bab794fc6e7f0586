// Package monitoring tests the alerts and dashboards of the chart: that what they ask for exists, that each alert fires
// and rests, by Prometheus' own rule tester, and that every query of a dashboard has an answer in a Prometheus that
// scrapes the operator during a drill on the local control plane.
//
// "make monitoring" runs all of it. Without LOCKSTEP_MONITORING, which names the directory of prometheus and promtool,
// the package tests the files alone.
package monitoring
