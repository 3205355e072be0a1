package main

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
)

// The picture's measures, in pixels.
const (
	pictureWidth, pictureHeight = 900, 330
	plotTop, plotBottom         = 60, 270
	linesLeft, linesRight       = 60, 400
	barsLeft, barsRight         = 560, 840
)

// pictureColors are those of the alternatives, in their order.
var pictureColors = []string{"#c0392b", "#2471a3", "#7f8c8d", "#1e8449", "#b9770e"}

// picture draws grants/s against the number of hosts, and how long a lock stays taken after its
// holder ended.
func (a *alternativesReport) picture() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %d" font-family="sans-serif" font-size="12">`+"\n", pictureWidth, pictureHeight, pictureHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", pictureWidth, pictureHeight)
	a.drawGrants(&b)
	a.drawEnds(&b)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func label(w io.Writer, x, y float64, anchor, text string) {
	fmt.Fprintf(w, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(text))
}

func line(w io.Writer, x1, y1, x2, y2 float64, color string, width float64) {
	fmt.Fprintf(w, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"/>`+"\n", x1, y1, x2, y2, color, width)
}

// drawGrants draws a line for each alternative. The numbers of hosts are at equal distances.
func (a *alternativesReport) drawGrants(w io.Writer) {
	names := a.measured()
	rate := func(name string, hosts int) float64 {
		if s := a.series[seriesKey(fleetScenario(hosts).title, name)]; s != nil {
			return s.medianOf(sample.rate)
		}
		return 0
	}
	most := 0.0
	for _, name := range names {
		for _, n := range alternativeHosts {
			most = max(most, rate(name, n))
		}
	}
	top, step := scaleOf(most)
	y := func(v float64) float64 { return plotBottom - v/top*(plotBottom-plotTop) }
	x := func(i int) float64 {
		return linesLeft + float64(linesRight-linesLeft)*(float64(i)+0.5)/float64(len(alternativeHosts))
	}
	label(w, linesLeft, 30, "start", "Grants/s: hosts with one waiter each, 1 ms of work")
	for v := 0.0; v <= top; v += step {
		line(w, linesLeft, y(v), linesRight, y(v), "#dddddd", 1)
		label(w, linesLeft-6, y(v)+4, "end", fmt.Sprintf("%.0f", v))
	}
	for i, n := range alternativeHosts {
		label(w, x(i), plotBottom+18, "middle", fmt.Sprintf("%d hosts", n))
	}
	for k, name := range names {
		color := pictureColors[k%len(pictureColors)]
		for i, n := range alternativeHosts {
			if i > 0 {
				line(w, x(i-1), y(rate(name, alternativeHosts[i-1])), x(i), y(rate(name, n)), color, 2)
			}
			fmt.Fprintf(w, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x(i), y(rate(name, n)), color)
		}
		at := linesLeft + float64(k)*float64(linesRight-linesLeft+40)/float64(len(names))
		fmt.Fprintf(w, `<rect x="%.1f" y="%d" width="10" height="10" fill="%s"/>`+"\n", at, plotBottom+34, color)
		label(w, at+14, plotBottom+43, "start", name)
	}
}

// drawEnds draws two bars for each alternative.
func (a *alternativesReport) drawEnds(w io.Writer) {
	names := a.measured()
	seconds := func(name, end string) float64 { return medianOfMs(a.Ends[name][end]) / 1000 }
	most := 0.0
	for _, name := range names {
		most = max(most, seconds(name, processKilled), seconds(name, hostFails))
	}
	top, step := scaleOf(most)
	x := func(v float64) float64 { return barsLeft + v/top*(barsRight-barsLeft) }
	label(w, barsLeft-80, 30, "start", "Seconds until the next one has the lock (lease time 10 s)")
	for v := 0.0; v <= top; v += step {
		line(w, x(v), plotTop, x(v), plotBottom, "#dddddd", 1)
		label(w, x(v), plotBottom+18, "middle", fmt.Sprintf("%g", v))
	}
	height := float64(plotBottom-plotTop) / float64(max(1, len(names)))
	for k, name := range names {
		y := plotTop + float64(k)*height
		label(w, barsLeft-8, y+height/2+4, "end", name)
		for i, end := range []string{processKilled, hostFails} {
			v := seconds(name, end)
			opacity := 1 - 0.5*float64(i)
			fmt.Fprintf(w, `<rect x="%d" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity="%.1f"/>`+"\n",
				barsLeft, y+height*(0.12+0.38*float64(i)), max(1, x(v)-barsLeft), height*0.36, pictureColors[k%len(pictureColors)], opacity)
			label(w, x(v)+4, y+height*(0.12+0.38*float64(i))+height*0.28, "start", duration(1000*v))
		}
	}
	label(w, barsLeft-80, plotBottom+43, "start", "dark: the holder's process is killed; light: its host fails")
}

// scaleOf returns the end of an axis for that value, and the distance of its marks: 1, 2 or 5 times a
// power of ten.
func scaleOf(most float64) (top, step float64) {
	if most <= 0 {
		return 1, 1
	}
	step = math.Pow(10, math.Floor(math.Log10(most)))
	for _, by := range []float64{0.2, 0.5, 1, 2} {
		if most/(step*by) <= 6 {
			step *= by
			break
		}
	}
	return math.Ceil(most/step) * step, step
}
