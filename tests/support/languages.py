"""Texts of three kinds: what a service's users wrote when it was built, and what others write later."""

from __future__ import annotations

from triton_repo_builder.measure.bench.load import texts

ENGLISH = texts.corpus(None)
LONG = tuple(" ".join(ENGLISH[start : start + 8]) for start in range(0, 160, 8))
GERMAN = (
    "Die Lieferung kam zwei Tage später als versprochen, und der Karton war an einer Ecke eingedrückt.",
    "Können Sie mir bitte sagen, wie ich die Rechnungsanschrift in meinem Kundenkonto nachträglich ändere?",
    "Das Hotelzimmer war sauber, aber die Klimaanlage rauschte die ganze Nacht, sodass wir kaum schliefen.",
    "Seit der letzten Aktualisierung stürzt die Anwendung ab, sobald ich ein Foto hochladen möchte.",
    "Der Kundendienst hat freundlich und schnell geantwortet, das Ersatzteil war nach drei Tagen da.",
    "Wegen einer Stellwerksstörung verkehrt die Regionalbahn heute nur zwischen Göttingen und Kassel.",
    "Ich möchte meine Mitgliedschaft zum nächstmöglichen Zeitpunkt kündigen und bitte um Bestätigung.",
    "Die Bedienungsanleitung ist unverständlich übersetzt, ohne Abbildungen kommt man nicht weiter.",
    "Bei der Anmeldung erscheint die Fehlermeldung, mein Zertifikat sei abgelaufen oder ungültig.",
    "Für die Bezahlung per Lastschrift benötigen wir noch das unterschriebene Einzugsermächtigungsformular.",
)
JAPANESE = (
    "注文した商品がまだ届いていません。配送状況を確認していただけますか。",
    "駅から歩いて五分、部屋は静かで清潔でした。また泊まりたいと思います。",
    "説明書の通りに組み立てましたが、最後の部品がどうしても合いません。",
    "先月の請求書に同じ項目が二回載っているので、返金をお願いします。",
    "更新してから写真を保存するたびにアプリが落ちてしまいます。",
    "とても親切な対応で、交換品も翌日に届きました。ありがとうございます。",
    "会員登録を解約したいのですが、手続きの方法がわかりません。",
    "今日は大雪のため、特急列車はすべて運休しています。",
)
