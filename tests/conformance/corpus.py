"""The text that small tokenizers are trained on: a few lines of many languages and scripts."""

LINES = """
The quick brown fox jumps over the lazy dog near the bank of the river.
How do I reset my password if I no longer have access to my e-mail account?
Angela Merkel met Emmanuel Macron in Paris on Tuesday, and they talked about the European Union.
Machine learning models are exported once, served many times and measured all the time.
The capital of France is Paris; the capital of Germany is Berlin, and that of Japan is Tokyo.
I love this product, it is great! I hate that one: it is terrible, slow and far too expensive.
Can you tell me what the weather will be like tomorrow in New York and San Francisco?
Her name was Maria Sklodowska, and she was born in Warsaw in eighteen sixty-seven.
Der schnelle braune Fuchs springt über den faulen Hund am Ufer des großen Flusses.
Die Rechnung wird am Ende jedes Monats per E-Mail verschickt; bitte überweisen Sie fünfzehn Euro.
Où est la bibliothèque? Elle est à côté de l'église, près du café de la gare.
Le modèle a été entraîné avec des données françaises, c'est très bien et ça marche déjà.
El niño pequeño comió una manzana en el jardín de la señora Muñoz por la mañana.
¿Cuánto cuesta esto? No lo sé, pero mañana preguntaré en la tienda de la esquina.
A reunião será amanhã em São Paulo, às nove horas, na sala de conferências.
Il gatto è sul tavolo e perciò la città è più bella della campagna.
Het weer is vandaag erg mooi, en morgen gaan wij met de fiets naar Amsterdam.
Ångström och Ödön är två namn; smörgåsbord är ett svenskt ord.
Příliš žluťoučký kůň úpěl ďábelské ódy, řekl pan Novák v Praze.
Zażółć gęślą jaźń, powiedział pan Kowalski w Krakowie i poszedł do domu.
Kış günü İstanbul'da çay içmek çok güzel, değil mi?
Tôi đang học tiếng Việt ở Hà Nội và rất thích phở bò.
Привет, мир! Сегодня хорошая погода, и мы пойдём гулять в парк в Москве.
Машинное обучение меняет то, как люди работают с текстом и изображениями.
Γειά σου κόσμε, η Αθήνα είναι η πρωτεύουσα της Ελλάδας.
שלום עולם, מה שלומך היום? אני גר בתל אביב.
مرحبا بالعالم، كيف حالك اليوم؟ أنا أعيش في القاهرة.
नमस्ते दुनिया, आज मौसम बहुत अच्छा है और हम दिल्ली में हैं।
สวัสดีชาวโลก วันนี้อากาศดีมาก เราอยู่ที่กรุงเทพฯ
今日は天気がいいので、東京の公園を散歩しました。
東京都は日本の首都です。大阪も大きな都市です。
今天天气很好，我们去北京的公园散步。机器学习很有意思。
안녕하세요 세계, 오늘은 날씨가 아주 좋습니다. 서울에 살고 있어요.
Order #12345 was shipped on 2024-10-31 at 09:15 for $1,299.99 (incl. 19% VAT).
def main(argv): return sum(int(x) for x in argv[1:]) if len(argv) > 1 else 0
Visit https://example.com/path?query=1&other=two or write to someone@example.com today.
Thanks 😀👍🏽! See you at the party 🎉🎉, bring 🍕 and a smile :-)
""".strip().splitlines()
