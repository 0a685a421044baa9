//! A plot of figures by day: inline SVG, a legend, and the same numbers as a table for those who read them. `plot.html`
//! writes what is measured here. Every series has a dash or a filling of its own, so that no reader depends on colours,
//! which are in the stylesheet. Axes begin at zero.

use askama::Template;

#[derive(Template)]
#[template(path = "plot.html")]
pub struct Plot {
    text: PlotText,
    frame: Frame,
    ticks: Vec<PlotTick>,
    day_labels: Vec<DayLabel>,
    series: Vec<DrawnSeries>,
    /// What the drawing shows, in words.
    description: String,
    rows: Vec<DayRow>,
}

pub struct PlotText {
    /// Unique on its page: ids begin with it.
    pub name: &'static str,
    pub title: &'static str,
    /// In the place of a plot of nothing: what will be there.
    pub empty: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PlotKind {
    /// Counts, side by side.
    Bars,
    /// Counts that are parts of a whole, one above the other.
    StackedBars,
    /// How things stood at the end of each day.
    Lines,
}

/// The numbers of one thing, one for each day.
pub struct PlotSeries {
    pub name: &'static str,
    pub values: Vec<i64>,
}

/// In tenths of a pixel of a phone, so that whole numbers are exact enough.
struct Frame {
    width: i64,
    height: i64,
    left: i64,
    right: i64,
    top: i64,
    bottom: i64,
    /// The base line of the labels of days.
    foot: i64,
}

struct PlotTick {
    y: i64,
    label: String,
}

struct DayLabel {
    x: i64,
    anchor: &'static str,
    day: String,
}

/// A row of the table.
struct DayRow {
    day: String,
    values: Vec<i64>,
}

struct DrawnSeries {
    name: &'static str,
    /// From 1 to 4: names its class and its pattern.
    number: usize,
    fill: String,
    bars: Vec<PlotBar>,
    line: Option<PlotLine>,
}

struct PlotBar {
    x: i64,
    y: i64,
    width: i64,
    height: i64,
}

struct PlotLine {
    points: String,
    /// The last point, which has a mark: a line of one day has nothing else to see.
    end: (i64, i64),
}

const FRAME: Frame =
    Frame { width: 3_600, height: 1_800, left: 420, right: 3_560, top: 140, bottom: 1_520, foot: 1_720 };
/// More lines across the plot would be a fence.
const TICKS_MAX: i64 = 4;
/// No tenant counts as many, and their sums and products are far from the end of an `i64`.
const VALUE_MAX: i64 = 1_000_000_000_000;
/// What is not nothing is seen, however small it is beside the rest.
const BAR_HEIGHT_MIN: i64 = 20;
/// A bar of a single day would be a wall.
const BAR_WIDTH_MAX: i64 = 300;

impl Plot {
    /// `days` are dates such as `2026-01-15`, the oldest first. There are four series at most, with a value for each day.
    pub fn new(text: PlotText, kind: PlotKind, days: &[String], series: &[PlotSeries]) -> Self {
        let axis = Axis::new(highest_mark(kind, days.len(), series));
        let mut drawn: Vec<DrawnSeries> =
            series.iter().zip(1..).map(|(series, number)| DrawnSeries::new(text.name, series.name, number)).collect();
        if kind == PlotKind::Lines {
            for (drawn, series) in drawn.iter_mut().zip(series) {
                drawn.line = draw_line(&axis, &series.values);
            }
        } else {
            draw_bars(kind, &axis, days.len(), series, &mut drawn);
        }
        let description = series.iter().map(|series| describe_series(kind, days, series)).collect::<Vec<_>>().join(" ");
        let row = |(at, day): (usize, &String)| DayRow {
            day: day.clone(),
            values: series.iter().map(|series| series.values.get(at).copied().unwrap_or_default()).collect(),
        };
        let rows = days.iter().enumerate().map(row).collect();
        Plot { text, frame: FRAME, ticks: axis.ticks(), day_labels: label_days(days), series: drawn, description, rows }
    }

    /// Whether there is anything to draw.
    pub fn has_data(&self) -> bool {
        self.rows.iter().any(|row| row.values.iter().any(|value| *value != 0))
    }
}

impl DrawnSeries {
    fn new(plot: &str, name: &'static str, number: usize) -> Self {
        // The first is filled with its colour, the others with patterns of theirs.
        let fill = if number == 1 { "currentColor".to_owned() } else { format!("url(#{plot}-fill-{number})") };
        DrawnSeries { name, number, fill, bars: Vec::new(), line: None }
    }
}

fn drawn_value(series: &PlotSeries, day: usize) -> i64 {
    series.values.get(day).map_or(0, |value| (*value).clamp(0, VALUE_MAX))
}

fn highest_mark(kind: PlotKind, days: usize, series: &[PlotSeries]) -> i64 {
    let of_day = |day| {
        let values = series.iter().map(|series| drawn_value(series, day));
        if kind == PlotKind::StackedBars { values.sum() } else { values.max().unwrap_or_default() }
    };
    (0..days).map(of_day).max().unwrap_or_default()
}

/// From zero to the first tick that no value is above.
struct Axis {
    step: i64,
    top: i64,
}

impl Axis {
    fn new(highest: i64) -> Self {
        let highest = highest.max(1);
        let mut unit = 1;
        let step = loop {
            if let Some(factor) = [1, 2, 5].into_iter().find(|factor| unit * factor * TICKS_MAX >= highest) {
                break unit * factor;
            }
            unit *= 10;
        };
        Axis { step, top: (highest + step - 1) / step * step }
    }

    fn height(&self, value: i64) -> i64 {
        value * (FRAME.bottom - FRAME.top) / self.top
    }

    fn ticks(&self) -> Vec<PlotTick> {
        let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
        let (unit, sign) = units.into_iter().find(|(unit, _)| self.step % unit == 0).unwrap_or((1, ""));
        let tick = |value: i64| PlotTick {
            y: FRAME.bottom - self.height(value),
            label: if value == 0 { "0".to_owned() } else { format!("{}{sign}", value / unit) },
        };
        (0..=self.top / self.step).map(|number| tick(number * self.step)).collect()
    }
}

/// The middle of a day's part of the axis.
fn day_middle(day: usize, days: usize) -> i64 {
    FRAME.left + (2 * day as i64 + 1) * (FRAME.right - FRAME.left) / (2 * days as i64)
}

fn draw_line(axis: &Axis, values: &[i64]) -> Option<PlotLine> {
    let point = |(day, value): (usize, &i64)| {
        (day_middle(day, values.len()), FRAME.bottom - axis.height((*value).clamp(0, VALUE_MAX)))
    };
    let points: Vec<(i64, i64)> = values.iter().enumerate().map(point).collect();
    let end = points.last().copied()?;
    let points: Vec<String> = points.into_iter().map(|(x, y)| format!("{x},{y}")).collect();
    Some(PlotLine { points: points.join(" "), end })
}

fn draw_bars(kind: PlotKind, axis: &Axis, days: usize, series: &[PlotSeries], drawn: &mut [DrawnSeries]) {
    let is_stacked = kind == PlotKind::StackedBars;
    let beside = if is_stacked { 1 } else { series.len() as i64 };
    for day in 0..days {
        // A fifth is left free between days.
        let width = ((FRAME.right - FRAME.left) * 4 / (5 * days as i64 * beside.max(1))).min(BAR_WIDTH_MAX);
        let mut x = day_middle(day, days) - width * beside / 2;
        let mut y = FRAME.bottom;
        for (series, drawn) in series.iter().zip(drawn.iter_mut()) {
            let value = drawn_value(series, day);
            if value > 0 {
                let height = axis.height(value).max(BAR_HEIGHT_MIN);
                drawn.bars.push(PlotBar { x, y: y - height, width, height });
                if is_stacked {
                    y -= height;
                }
            }
            if !is_stacked {
                x += width;
            }
        }
    }
}

/// The first day, one in the middle, and the last.
fn label_days(days: &[String]) -> Vec<DayLabel> {
    let last = days.len().saturating_sub(1);
    let label = |at: usize| {
        let day = days.get(at)?;
        let (x, anchor) = match at {
            0 if last > 0 => (FRAME.left, "start"),
            at if at == last && last > 0 => (FRAME.right, "end"),
            at => (day_middle(at, days.len()), "middle"),
        };
        // Without the year, which the table has.
        Some(DayLabel { x, anchor, day: day.get(5..).unwrap_or(day).to_owned() })
    };
    let mut labelled = vec![0, last / 2, last];
    labelled.dedup();
    labelled.into_iter().filter_map(label).collect()
}

fn describe_series(kind: PlotKind, days: &[String], series: &PlotSeries) -> String {
    let most = series.values.iter().zip(days).max_by_key(|(value, _)| **value).filter(|(value, _)| **value > 0);
    let most = most.map_or_else(String::new, |(value, day)| format!(", at most {value} on {day}"));
    let name = series.name;
    if kind == PlotKind::Lines {
        format!("{name}: {} at last{most}.", series.values.last().copied().unwrap_or_default())
    } else {
        format!("{name}: {} in all{most}.", series.values.iter().sum::<i64>())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const TEXT: PlotText = PlotText { name: "plot-x", title: "A <b> & \"c\"", empty: "Nothing yet." };

    fn days(count: usize) -> Vec<String> {
        (1..=count).map(|day| format!("2026-01-{day:02}")).collect()
    }

    fn plot(kind: PlotKind, values: &[&[i64]]) -> Plot {
        let series = |values: &&[i64]| PlotSeries { name: "Made <i>&", values: values.to_vec() };
        let days = days(values.first().map_or(0, |values| values.len()));
        Plot::new(TEXT, kind, &days, &values.iter().map(series).collect::<Vec<_>>())
    }

    fn labels(highest: i64) -> Vec<String> {
        Axis::new(highest).ticks().into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn an_axis_has_round_numbers_and_room_for_the_highest_value() {
        for (highest, expected) in [
            (0, vec!["0", "1"]),
            (1, vec!["0", "1"]),
            (3, vec!["0", "1", "2", "3"]),
            (7, vec!["0", "2", "4", "6", "8"]),
            (11, vec!["0", "5", "10", "15"]),
            (1_999, vec!["0", "500", "1000", "1500", "2000"]),
            (41_000, vec!["0", "20k", "40k", "60k"]),
            (1_500_000, vec!["0", "500k", "1000k", "1500k"]),
        ] {
            assert_eq!(labels(highest), expected, "{highest}");
        }
        for highest in [1, 9, 10, 99, 12_345, VALUE_MAX, 9 * VALUE_MAX] {
            let axis = Axis::new(highest);
            assert!(axis.top >= highest && axis.top - axis.step < highest, "{highest}");
            assert!(axis.top / axis.step <= TICKS_MAX, "{highest}");
            assert!((0..=FRAME.bottom - FRAME.top).contains(&axis.height(highest)), "{highest}");
        }
    }

    #[test]
    fn bars_stand_on_the_axis_and_within_the_frame() {
        let plot = plot(PlotKind::Bars, &[&[2, 0, 4], &[1, 1, 0]]);
        assert_eq!(plot.series.iter().map(|series| series.bars.len()).collect::<Vec<_>>(), [2, 2]);
        let [first, second] = [&plot.series[0].bars, &plot.series[1].bars];
        for bar in first.iter().chain(second) {
            assert_eq!(bar.y + bar.height, FRAME.bottom);
            assert!(bar.x >= FRAME.left && bar.x + bar.width <= FRAME.right && bar.y >= FRAME.top);
        }
        assert_eq!(first[0].height, 2 * second[0].height);
        assert_eq!(first[0].x + first[0].width, second[0].x);
    }

    #[test]
    fn stacked_bars_stand_on_each_other_and_none_is_too_small_to_see() {
        let plot = plot(PlotKind::StackedBars, &[&[100_000], &[0], &[1], &[1]]);
        let bars: Vec<&PlotBar> = plot.series.iter().flat_map(|series| &series.bars).collect();
        assert_eq!(bars.len(), 3);
        assert_eq!(bars[0].y + bars[0].height, FRAME.bottom);
        assert!(bars.windows(2).all(|pair| pair[1].y + pair[1].height == pair[0].y));
        assert!(bars.iter().all(|bar| bar.height >= BAR_HEIGHT_MIN && bar.y > 0));
    }

    #[test]
    fn a_line_goes_through_every_day_and_one_day_is_a_point() {
        let line = plot(PlotKind::Lines, &[&[0, 5, 10, -1, i64::MAX]]).series.remove(0).line.unwrap();
        assert_eq!(line.points.split(' ').count(), 5);
        assert!(line.points.starts_with(&format!("{},{} ", day_middle(0, 5), FRAME.bottom)), "{}", line.points);
        assert_eq!(line.end, (day_middle(4, 5), FRAME.top));
        let one = plot(PlotKind::Lines, &[&[3]]);
        let html = one.render().unwrap();
        assert!(html.contains(&format!("<circle cx=\"{}\" cy=\"{}\"", day_middle(0, 1), FRAME.top)), "{html}");
        assert_eq!(one.day_labels.len(), 1);
    }

    #[test]
    fn days_are_labelled_at_the_ends_and_in_the_middle() {
        let days: Vec<(String, &str)> =
            label_days(&days(30)).into_iter().map(|label| (label.day, label.anchor)).collect();
        let expected = [("01-01", "start"), ("01-15", "middle"), ("01-30", "end")];
        assert_eq!(days, expected.map(|(day, anchor)| (day.to_owned(), anchor)));
        assert!(label_days(&[]).is_empty());
    }

    #[test]
    fn nothing_is_a_sentence_and_no_plot() {
        for nothing in [plot(PlotKind::Bars, &[&[0, 0]]), plot(PlotKind::Lines, &[&[]]), plot(PlotKind::Lines, &[])] {
            assert!(!nothing.has_data());
            let html = nothing.render().unwrap();
            assert!(html.contains("Nothing yet.") && !html.contains("<svg") && !html.contains("<table"), "{html}");
        }
    }

    #[test]
    fn what_is_drawn_is_said_and_listed_too() {
        let html = plot(PlotKind::Bars, &[&[1, 4], &[0, 0]]).render().unwrap();
        assert!(html.contains("5 in all, at most 4 on 2026-01-02. "), "{html}");
        assert!(
            html.contains("<th scope=\"row\">2026-01-02</th><td class=\"number\">4</td><td class=\"number\">0</td>")
        );
        let levels = plot(PlotKind::Lines, &[&[6, 4]]).render().unwrap();
        assert!(levels.contains("4 at last, at most 6 on 2026-01-01."), "{levels}");
    }

    #[test]
    fn names_are_text_and_nothing_is_styled_in_place() {
        for kind in [PlotKind::Bars, PlotKind::StackedBars, PlotKind::Lines] {
            let html = plot(kind, &[&[1, 2], &[3, 4]]).render().unwrap();
            for dangerous in ["<b>", "<i>", "\"c\"", "style=", "<script", "http"] {
                assert!(!html.contains(dangerous), "{dangerous} in {html}");
            }
            assert!(
                html.contains("A &#60;b&#62; &#38; &#34;c&#34;") && html.contains("Made &#60;i&#62;&#38;"),
                "{html}"
            );
            assert!(html.contains("role=\"img\"") && html.contains("<title id=\"plot-x-title\">"), "{html}");
        }
    }
}
