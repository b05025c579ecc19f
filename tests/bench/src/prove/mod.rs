mod world;
use sendslot_domain::{*, schedule::*, budget::Settings};
use world::World;
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
pub(crate) trait Desk {
    fn book(&mut self, now: Moment, lane: Lane, asks: &[(TenantName, Standing)]) -> Result<Vec<Booking>>;
    fn pause(&mut self, now: Moment, tenant: &TenantName) -> Result<()>;
}
struct M(Schedule);
impl Desk for M {
    fn book(&mut self, now: Moment, lane: Lane, asks: &[(TenantName, Standing)]) -> Result<Vec<Booking>> {
        Ok(asks.iter().map(|(t, s)| self.0.book(now, lane, t, 1, *s)).collect())
    }
    fn pause(&mut self, now: Moment, tenant: &TenantName) -> Result<()> { self.0.pause(now, tenant); Ok(()) }
}
fn budget(l: &str, h: &str, slice: &str) -> Settings {
    Settings { limit: l.parse().unwrap(), headroom: h.parse().unwrap(), guard: "0.99".parse().unwrap(), burst: None, reserve: "0".parse().unwrap(),
      slice: slice.parse().unwrap(), caps: Default::default(), horizon: Millis::from_secs(60) }
}
const T0: Moment = Moment(1_800_000_000_000);
fn names(n: usize) -> Vec<TenantName> { (0..n).map(|i| format!("t{i}").parse().unwrap()).collect() }
fn at(s: f64) -> Moment { Moment(T0.0 + (s*1000.0) as u64) }
fn equals(l: &str, h: &str) {
    let mut m = M(Schedule::new(Budget::new(budget(l, h, "0.05")).unwrap()));
    let rate = m.0.budget().rate().per_second();
    let mut w = World::new(&mut m, names(20+400), T0);
    w.hand_in(0, 72_000, T0);
    let each = (rate * 800.0 / 20.0) as usize;
    for t in 1..20 { w.hand_in(t, each.max(100), at(60.0)); }
    for k in 0..100 { w.hand_in(20+k, 1, at(61.0 + k as f64 * 6.1)); }
    w.run_until(at(760.0), |_| true).unwrap();
    let show = |name: &str, s: Vec<u64>| { let s=&s[..20]; let (mn,mx)=(s[1..].iter().min().unwrap(), s[1..].iter().max().unwrap()); println!("{name}: t0 {} others {mn}..{mx}", s[0]); };
    show("60-660", w.sent(T0, 60, 660)); show("120-720", w.sent(T0,120,720));
    let used: u64 = w.sent(T0, 120, 720).iter().sum();
    let worst = w.mail.iter().filter(|m| m.tenant>=20).map(|m| m.slot.as_ref().map_or(999_999, |s| m.born.until(s.at).0)).max();
    println!("  L={l} used {:.4} newcomer worst {:?} waits {:?} overtaken {}", used as f64/(rate*600.0), worst, w.waits(), w.overtaken());
}
fn weights() {
    let mut s = Schedule::new(Budget::new(budget("100", "0.95", "0.05")).unwrap());
    s.set_tenant("t0".parse().unwrap(), Tenant{weight:3, ..Default::default()});
    let mut m = M(s);
    let mut w = World::new(&mut m, names(2), T0);
    w.hand_in(0, 60_000, T0); w.hand_in(1, 30_000, T0);
    w.run_until(at(760.0), |_| true).unwrap();
    println!("weights {:?} {:?}", w.sent(T0, 0, 600), w.sent(T0,120,720));
}
fn million(n: usize, total: usize, spread: f64, slice: &str) {
    let mut m = M(Schedule::new(Budget::new(budget("100", "0.95", slice)).unwrap()));
    let mut w = World::new(&mut m, names(n), T0);
    for t in 0..n { let s = (t*t*7919 % 1000) as f64/1000.0*spread; w.hand_in(t, total/n, at(if t==0 {0.0} else {s})); }
    w.run().unwrap();
    println!("million n={n} {total} spread={spread}: took {:.1} ideal {:.1} ratio {:.4} waits {:?} overtaken {}", T0.until(w.last()).0 as f64/1e3, total as f64/95.0,
      T0.until(w.last()).0 as f64/1e3/(total as f64/95.0), w.waits(), w.overtaken());
}
pub(crate) fn main() {
    let t = std::time::Instant::now();
    equals("100", "0.95"); equals("14", "0.9"); weights();
    million(1, 200_000, 0.0, "0"); million(20, 200_000, 600.0, "0.05");
    println!("{:?}", t.elapsed());
    million(1, 1_000_000, 0.0, "0"); 
    million(20, 1_000_000, 600.0, "0.05");
    million(20, 1_000_000, 5000.0, "0.05");
    println!("{:?}", t.elapsed());
}
