// A page of names, put through filters by its template.
use minijinja::{context, Environment};

fn main() {
    let pages: usize = std::env::args().nth(1).map_or(200, |word| word.parse().unwrap());
    let mut environment = Environment::new();
    let page = "{% for name in names %}{{ name|trim|upper }}: {{ name|replace(' ', '-')|lower }}\n{% endfor %}";
    environment.add_template("page.txt", page).unwrap();
    let names = ["Ada Lovelace", "Grace Hopper", " Barbara Liskov ", "Frances Allen"];
    let mut bytes = 0;
    for _ in 0..pages {
        let text = environment.get_template("page.txt").unwrap().render(context!(names => names)).unwrap();
        bytes += text.len();
    }
    println!("{bytes} bytes");
}
