// Collections of geometries, read from text.
fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(300, |word| word.parse().unwrap());
    let text = r#"{"type": "GeometryCollection", "geometries": [
        {"type": "Point", "coordinates": [100.0, 0.5]},
        {"type": "LineString", "coordinates": [[101.0, 0.0], [102.0, 1.0], [103.0, 2.0]]}]}"#;
    let mut geometries = 0;
    for _ in 0..rounds {
        if let geojson::GeoJson::Geometry(geometry) = text.parse::<geojson::GeoJson>().unwrap() {
            if let geojson::Value::GeometryCollection(parts) = geometry.value {
                geometries += parts.len();
            }
        }
    }
    println!("{geometries} geometries");
}
